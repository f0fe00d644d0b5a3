import { randomBytes } from 'node:crypto';
import type { SignedWebhookRequest } from 'nestjs-webhook-token';
import { signWebhookToken } from 'nestjs-webhook-token/token';
import { failuresAmong, type Act } from './act.js';
import type { Order } from './skills.js';

const ORDER: Order = { id: 'o-2', total: 4200 };

/** An attacker between the two processes reads, changes and repeats their requests. */
export const REFUSALS: readonly Act[] = [
  {
    title: 'An attacker lowers the total of an order in transit.',
    async play({ publisher, receiver }) {
      const signed = await publisher.ask('sign', ORDER, { method: 'POST' });
      const body = Buffer.from(signed.body!.toString().replace('4200', '1000'));
      const answer = await send({ ...signed, body });
      const runs = await receiver.ask('runsFor', signed.id);
      return {
        sent: 'the signed POST, its body changed from 4200 to 1000',
        answered: describe(answer),
        outcome: 'the body does not match the digest in the token: no handler ran',
        failures: failuresAmong([
          [
            answer.status === 400 && answer.code === 'hash_mismatch',
            'the request was not rejected',
          ],
          [runs.length === 0, 'a handler ran'],
        ]),
      };
    },
  },
  {
    title: 'An attacker records a request and sends it again.',
    async play({ publisher, receiver }) {
      const signed = await publisher.ask('sign', ORDER, {});
      const first = await send(signed);
      const second = await send(signed);
      const runs = await receiver.ask('runsFor', signed.id);
      return {
        sent: 'the same HEAD twice',
        answered: `${describe(first)}, then ${describe(second)}`,
        outcome: 'the duplicate is acknowledged, so an honest sender stops: the handler ran once',
        failures: failuresAmong([
          [first.status === 204 && !first.duplicate, 'the first was not handled'],
          [
            second.status === 204 && second.duplicate,
            'the second was not recognised as a duplicate',
          ],
          [runs.length === 1, `the handler ran ${runs.length} times`],
        ]),
      };
    },
  },
  {
    title: "An event's id is reused with different content.",
    async play({ publisher, receiver }) {
      const signed = await publisher.ask('sign', ORDER, {});
      const other = await publisher.ask('sign', { ...ORDER, total: 1 }, { id: signed.id });
      const first = await send(signed);
      const second = await send(other);
      const runs = await receiver.ask('runsFor', signed.id);
      return {
        sent: 'two HEADs with valid signatures, one id, two totals',
        answered: `${describe(first)}, then ${describe(second)}`,
        outcome: 'a handled event cannot be replaced: the handler ran once',
        failures: failuresAmong([
          [first.status === 204, 'the first was not handled'],
          [second.status === 401 && second.code === 'replayed', 'the second was not rejected'],
          [runs.length === 1, `the handler ran ${runs.length} times`],
        ]),
      };
    },
  },
  {
    title: 'An attacker without the secret signs an order.',
    async play({ receiver, url, issuer }) {
      const id = 'forged-1';
      const key = randomBytes(32).toString('hex');
      const input = { event: 'order.created', data: ORDER, txn: id };
      const token = await signWebhookToken(input, { issuer, key });
      const headers = { authorization: `Bearer ${token}` };
      const answer = await send({ method: 'HEAD', url, headers });
      const runs = await receiver.ask('runsFor', id);
      return {
        sent: `a HEAD in the name of ${issuer}, signed with another secret`,
        answered: describe(answer),
        outcome: 'the signature is not valid: no handler ran',
        failures: failuresAmong([
          [
            answer.status === 401 && answer.code === 'bad_signature',
            'the request was not rejected',
          ],
          [runs.length === 0, 'a handler ran'],
        ]),
      };
    },
  },
];

interface Answer {
  readonly status: number;
  readonly duplicate: boolean;
  readonly code: string | null;
}

async function send({
  url,
  ...request
}: Pick<SignedWebhookRequest, 'method' | 'url' | 'headers' | 'body'>): Promise<Answer> {
  const { status, headers } = await fetch(url, request);
  return {
    status,
    duplicate: headers.get('webhook-duplicate') === 'true',
    code: headers.get('webhook-error'),
  };
}

function describe({ status, duplicate, code }: Answer): string {
  const note = duplicate ? 'Webhook-Duplicate: true' : code;
  return note === null ? String(status) : `${status} (${note})`;
}
