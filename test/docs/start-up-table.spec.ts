import { describe, expect, it } from '@jest/globals';
import { webcrypto } from 'node:crypto';
import { readFileSync } from 'node:fs';
import { join } from 'node:path';
import { SystemClock } from '../../lib/clock/webhook-clock.js';
import type { ConfigurationFault } from '../../lib/errors/webhook.error.js';
import type { WebhookPublisherOptions } from '../../lib/publisher/options/publisher-options.interface.js';
import { resolvePublisherOptions } from '../../lib/publisher/options/publisher-options.resolver.js';
import { InProcessQueue } from '../../lib/queue/in-process.queue.js';
import type { WebhookReceiverOptions } from '../../lib/receiver/receiver-options.interface.js';
import { resolveReceivers } from '../../lib/receiver/receiver-options.resolver.js';
import { ROOT } from './documents.js';

const SECRET = 'a-shared-secret-of-32-bytes-or-more';
const clock = new SystemClock();
const cryptoKey = await webcrypto.subtle.importKey(
  'raw',
  Buffer.from(SECRET),
  { name: 'HMAC', hash: 'SHA-256' },
  true,
  ['verify'],
);

/** Everything wrong that the table says of the options. */
const receivers = [
  {
    name: 'a',
    path: 'hooks',
    profiles: ['swt-draft-07'],
    clockTolerance: '60',
    requireHash: 'false',
    audience: [],
    issuer: 'https://a.example',
    replay: { windows: '1h' },
    issuers: [
      { issuer: 'https://a.example', secret: undefined },
      { issuer: 'https://f.example', keys: [] },
      { issuer: 'https://a.example', secret: SECRET },
      { issuer: 'https://b.example', secret: 'twelve-bytes' },
      { issuer: 'https://c.example', secret: `${SECRET}\n` },
      { issuer: 'https://d.example', secret: '-----BEGIN PUBLIC KEY-----\nMCowBQYDK2VwAyEA' },
      {
        issuer: 'https://g.example',
        keys: [
          { alg: 'ES256', key: '-----BEGIN PUBLIC KEY-----\\nMCowBQYDK2VwAyEA' },
          { alg: 'ES256', key: { kty: 'EC', use: 'enc' } },
          { alg: 'ES256', key: cryptoKey },
        ],
      },
      {
        issuer: 'https://h.example',
        keys: [
          { kid: 'a', key: SECRET, notAfter: 1 },
          { kid: 'b', key: SECRET },
          { kid: 'b', key: `${SECRET}-2` },
        ],
      },
      { issuer: 'https://i.example', jwksUri: 'http://i.example/keys' },
      { issuer: 'https://e.example', secret: [1, 2, 3, 4, 5].map((n) => `${SECRET}${n}`) },
    ],
  },
  { name: 'b', path: 'hooks/:tenant', issuers: [] },
  { name: 'a', path: 'c', issuers: [{ issuer: 'https://a.example', secret: SECRET }] },
  { name: 'a', path: 'c', issuers: [{ issuer: 'https://a.example', secret: SECRET }] },
  { name: 'd', issuers: [{ issuer: 'https://a.example', secret: SECRET }], acknowledge: 'queued' },
  {
    name: 'e',
    path: 'e',
    issuers: [{ issuer: 'https://a.example', secret: SECRET }],
    queue: new InProcessQueue(),
  },
] as unknown as WebhookReceiverOptions[];

const publisher: WebhookPublisherOptions = {
  issuer: 'https://shop.example',
  secret: SECRET,
  endpoints: [{ id: 'crm', url: 'http://crm.example', headers: { Host: 'crm.example' } }],
};

/** Messages of these rows come when handlers and routes are known: the module's own tests have them. */
const LATER =
  /^(?:Class\.method|HEAD \/path|receiver path|receiver: the HTTP|publisher\.queue: serves|WebhookModule: 2|Nest can't|receiver "a"\.(?:issuers|queue))/;

describe('the table of start-up messages in docs/operations.md', () => {
  it('has what the options are refused with', () => {
    const messages = [
      ...resolveReceivers(receivers, clock).faults,
      ...resolvePublisherOptions(publisher, { clock, production: true }).faults,
    ].map(({ path, message }: ConfigurationFault) => `${path}: ${message}`);

    const documented = documentedMessages().filter((text) => !LATER.test(text));

    expect(documented.length).toBeGreaterThan(12);
    expect(documented.filter((text) => !messages.some((one) => patternOf(text).test(one)))).toEqual(
      [],
    );
  });
});

/** The code in the first column; `…` stands for any text. */
function documentedMessages(): string[] {
  const page = readFileSync(join(ROOT, 'docs', 'operations.md'), 'utf8');
  const table = page.slice(page.indexOf('| Message'), page.indexOf('These warn and let'));
  return table
    .split('\n')
    .slice(2)
    .flatMap((row) =>
      [...(row.split('|')[1] ?? '').matchAll(/`([^`]+)`/g)].map(([, text]) => text!),
    );
}

function patternOf(text: string): RegExp {
  const literal = text.replace(/[.*+?^${}()|[\]\\]/g, '\\$&');
  return new RegExp(`^${literal.replaceAll('…', '.*')}`, 's');
}
