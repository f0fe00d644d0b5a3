import { failuresAmong, type Act, type Scene, type Stage } from './act.js';
import type { ParcelName } from './publisher/parcels.js';
import type { HandlerRun, SentParcel } from './skills.js';

/** Every event arrives once, unchanged, by the method that suits its size and type. */
export const DELIVERIES: readonly Act[] = [
  delivery(
    'order.created',
    'HEAD',
    'A small event travels inside the token of a HEAD request, which has no body.',
  ),
  delivery(
    'catalogue.exported',
    'POST',
    'A large event is the body of a POST, and the token carries its digest.',
  ),
  delivery('stock.exported', 'POST', 'A body can be of any type, such as a CSV file.'),
  delivery('photo.uploaded', 'POST', 'A body can be 5 MiB of binary data.'),
];

function delivery(event: ParcelName, method: HandlerRun['method'], title: string): Act {
  return { title, play: (stage) => deliver(stage, event, method) };
}

async function deliver(
  { publisher, receiver }: Stage,
  event: ParcelName,
  method: HandlerRun['method'],
): Promise<Scene> {
  const sent = await publisher.ask('send', event);
  const runs = await receiver.ask('runsFor', sent.id);
  const [run] = runs;
  return {
    sent: `${event} by ${run?.method ?? method}, ${describe(sent)}`,
    answered: String(sent.statusCode ?? 'nothing'),
    outcome: `its handler ran once, with the same data (${sent.digest.slice(0, 15)}…)`,
    failures: failuresAmong([
      [sent.statusCode === 204, 'the answer is not 204'],
      [runs.length > 0, `${event} is missing: it did not reach its handler`],
      [runs.length <= 1, `the handler ran ${runs.length} times`],
      [run === undefined || run.digest === sent.digest, 'the data was changed'],
      [run === undefined || run.method === method, `it was not sent by ${method}`],
      [
        run === undefined || run.contentType === sent.contentType,
        `it arrived as ${run?.contentType}`,
      ],
    ]),
  };
}

function describe({ bytes, contentType }: SentParcel): string {
  return `${bytes.toLocaleString('en')} bytes of ${contentType}`;
}
