import { randomBytes } from 'node:crypto';
import type { SignedWebhookRequest } from 'nestjs-webhook-token';
import { signWebhookToken } from 'nestjs-webhook-token/token';
import { faultsAmong, type Act } from './act.js';
import type { Order } from './skills.js';

const ORDER: Order = { id: 'o-2', total: 4200 };

/** An attacker between the two processes reads, changes and repeats what they send. */
export const REFUSALS: readonly Act[] = [
  {
    title: 'An attacker makes an order cheaper on its way.',
    async play({ publisher, receiver }) {
      const signed = await publisher.ask('sign', ORDER, { method: 'POST' });
      const body = Buffer.from(signed.body!.toString().replace('4200', '1000'));
      const answer = await send({ ...signed, body });
      const runs = await receiver.ask('runsFor', signed.id);
      return {
        sent: 'the signed POST, its body changed from 4200 to 1000',
        answered: tell(answer),
        outcome: 'the digest in the token is that of another body: no handler ran',
        faults: faultsAmong([
          [answer.status === 400 && answer.code === 'hash_mismatch', 'it was not refused'],
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
        answered: `${tell(first)}, then ${tell(second)}`,
        outcome: 'the copy is acknowledged, so that an honest sender stops: its handler ran once',
        faults: faultsAmong([
          [first.status === 204 && !first.duplicate, 'the first was not handled'],
          [second.status === 204 && second.duplicate, 'the second was not taken for a copy'],
          [runs.length === 1, `the handler ran ${runs.length} times`],
        ]),
      };
    },
  },
  {
    title: "An event's id is used again with other content.",
    async play({ publisher, receiver }) {
      const signed = await publisher.ask('sign', ORDER, {});
      const other = await publisher.ask('sign', { ...ORDER, total: 1 }, { id: signed.id });
      const first = await send(signed);
      const second = await send(other);
      const runs = await receiver.ask('runsFor', signed.id);
      return {
        sent: 'two well-signed HEADs, one id, two totals',
        answered: `${tell(first)}, then ${tell(second)}`,
        outcome: 'what was handled cannot be rewritten: its handler ran once',
        faults: faultsAmong([
          [first.status === 204, 'the first was not handled'],
          [second.status === 401 && second.code === 'replayed', 'the second was not refused'],
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
        answered: tell(answer),
        outcome: 'the signature does not hold: no handler ran',
        faults: faultsAmong([
          [answer.status === 401 && answer.code === 'bad_signature', 'it was not refused'],
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

function tell({ status, duplicate, code }: Answer): string {
  const note = duplicate ? 'Webhook-Duplicate: true' : code;
  return note === null ? String(status) : `${status} (${note})`;
}
