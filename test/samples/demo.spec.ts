import { beforeAll, describe, expect, it } from '@jest/globals';
import { SampleProcess } from './sample-process.js';

const DEMO = ['build/sample/demo/main.js'];

/** One act as printed: its title, and the rest of each labelled line. */
interface PrintedAct {
  readonly title: string;
  readonly lines: Readonly<Record<string, string>>;
}

function readActs(lines: readonly string[]): PrintedAct[] {
  const acts: PrintedAct[] = [];
  for (const line of lines) {
    const [, title] = /^\d+\. (.+)$/.exec(line) ?? [];
    if (title !== undefined) acts.push({ title, lines: {} });
    const [, label, text] = /^ {3}(\w+) +(.+)$/.exec(line) ?? [];
    const act = acts.at(-1);
    if (act !== undefined) Object.assign(act.lines, label && { [label]: text });
  }
  return acts;
}

describe('the demo', () => {
  let demo: SampleProcess;
  let code: number | null;

  beforeAll(async () => {
    demo = SampleProcess.run(DEMO);
    code = await demo.exitCode();
  });

  it('ends by itself with exit code 0', () => {
    expect([code, demo.lines.at(-1)]).toEqual([0, '9 of 9 had the expected outcome.']);
  });

  it('starts two processes that communicate over loopback', () => {
    const [, publisher] = /publisher process (\d+), signs as https:/.exec(demo.output) ?? [];
    const [, receiver] =
      /receiver +process (\d+), listens on http:\/\/127\.0\.0\.1:/.exec(demo.output) ?? [];

    expect(publisher).toBeDefined();
    expect(receiver).toBeDefined();
    expect(publisher).not.toBe(receiver);
  });

  it.each([
    ['A small event', /^order\.created by HEAD, \d\d bytes of application\/json$/, /^204$/],
    ['A large event', /^catalogue\.exported by POST, 3\d\d,\d{3} bytes of application\//, /^204$/],
    [
      'A body can be of any type',
      /^stock\.exported by POST, \d,\d{3} bytes of text\/csv$/,
      /^204$/,
    ],
    ['A body can be 5 MiB', /^photo\.uploaded by POST, 5,242,880 bytes of image\/jpeg$/, /^204$/],
    ['An attacker lowers', /body changed from 4200 to 1000$/, /^400 \(hash_mismatch\)$/],
    ['An attacker records', /the same HEAD twice/, /^204, then 204 \(Webhook-Duplicate: true\)$/],
    ["An event's id", /one id, two totals/, /^204, then 401 \(replayed\)$/],
    ['An attacker without the secret', /signed with another secret/, /^401 \(bad_signature\)$/],
    ['A handler fails', /^invoice\.paid by HEAD, and again/, /^500, so the event is scheduled/],
  ])('shows: %s', (title, sent, answered) => {
    const act = readActs(demo.lines).find((act) => act.title.startsWith(title));

    expect(act?.lines).toMatchObject({
      sent: expect.stringMatching(sent),
      answered: expect.stringMatching(answered),
      good: expect.any(String),
    });
  });

  it.each([
    ['order.created', 'A small event'],
    ['stock.exported', 'A body can be of any type'],
    ['photo.uploaded', 'A body can be 5 MiB'],
  ])('fails and reports %s if it is lost', async (event, title) => {
    const losing = SampleProcess.run(DEMO, { DEMO_LOSE: event });

    expect(await losing.exitCode()).toBe(1);

    const act = readActs(losing.lines).find((act) => act.title.startsWith(title));
    expect(act?.lines['WRONG']).toBe(`${event} is missing: it did not reach its handler`);
    expect(losing.lines.at(-1)).not.toBe('9 of 9 had the expected outcome.');
  });
});
