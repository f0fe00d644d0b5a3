import {
  parseStandardWebhooksKey,
  signedContent,
  type StandardWebhooksKey,
} from '../keys/standard-webhooks-key.js';
import { readOptions } from '../options/read-options.js';
import { flag, object, optional, required, type Rule } from '../options/rules.js';
import type { RequestHeaders, SignatureVariant } from '../request/webhook-scheme.js';
import {
  composeTest,
  createSender,
  type Credentials,
  SENDER,
  type SenderOptions,
  type WebhookSender,
} from './sender.js';
import {
  claimedTime,
  malformed,
  readTimestamp,
  requireSignatures,
  signatureHeader,
  stringAt,
  writeTimestamp,
} from './signature-header.js';

export interface StandardWebhooksOptions extends SenderOptions {
  /**
   * The secret, or several while it is rotated: `whsec_` and base64; or an Ed25519 key of the sender, `whpk_` and base64. Bytes are
   * taken as they are, for a sender whose secret is plain text: `Buffer.from(secret)`.
   */
  readonly secret: string | Uint8Array | readonly (string | Uint8Array | undefined)[] | undefined;
  /** Whether `event.data` is the member `data` of a body with `type` and `data`; default `true`. Otherwise it is the whole body. */
  readonly envelope?: boolean | undefined;
}

const key: Rule<StandardWebhooksKey> = (value, at, name) => {
  const { key: parsed, problem } = parseStandardWebhooksKey(value);
  return parsed ?? (at.add(name, problem) as never);
};

const keys: Rule<readonly StandardWebhooksKey[]> = (value, at, name) => {
  if (!Array.isArray(value)) return [key(value, at, name)];
  if (value.length === 0) return at.add(name, 'must have at least one secret') as never;
  return Array.from(value, (one: unknown, index) => key(one, at, `${name}[${index}]`));
};

const OPTIONS = object<StandardWebhooksOptions>()({
  ...SENDER,
  secret: required(keys),
  envelope: optional(flag, true),
});

/** The names of the three headers; svix and its customers use their own. */
const FAMILIES = ['webhook', 'svix'] as const;

/**
 * Receives Standard Webhooks, with the headers `webhook-*` or `svix-*`, signed by HMAC (`v1`) or Ed25519 (`v1a`).
 *
 * The event's name is the member `type` of the body, its id the header `webhook-id`.
 *
 * ```ts
 * WebhookModule.forRoot({
 *   receiver: { path: 'webhooks', sender: standardWebhooks({ secret: env.WEBHOOK_SECRET }) },
 * });
 * ```
 *
 * @throws {@link WebhookConfigurationError}
 * @see https://github.com/standard-webhooks/standard-webhooks/blob/main/spec/standard-webhooks.md
 */
export function standardWebhooks(options: StandardWebhooksOptions): WebhookSender {
  const { secret, envelope, tolerance, event } = readOptions(OPTIONS, options, 'standardWebhooks');
  const read = (headers: RequestHeaders): Credentials => {
    const { id, time, signature } = readHeaders(headers);
    const timestamp = readTimestamp(time);
    const parts = signature.split(' ');
    const byVersion = (version: string): string[] =>
      parts.flatMap((part) =>
        part.startsWith(`${version},`) ? part.slice(version.length + 1) : [],
      );
    const signatures = { v1: byVersion('v1'), v1a: byVersion('v1a') };
    requireSignatures([...signatures.v1, ...signatures.v1a]);
    return {
      id,
      timestamp,
      holdFor(body) {
        const signed = signedContent(id, time, body);
        return secret
          .map((one) => one.holdsFor(signed, signatures[one.version]))
          .some((holds) => holds);
      },
    };
  };

  return createSender({
    name: 'standard-webhooks',
    present: FAMILIES.map((family) => `${family}-signature`),
    tolerance,
    envelope,
    event: event ?? (({ data }) => stringAt(data, 'type')),
    // The answers are those to tokens, which may come from the same sender.
    answer: () => undefined,
    read,
    claim: read,
    diagnose(headers) {
      const { id, time, signature } = readHeaders(headers);
      const signatures = signature.split(' ').map((part) => part.replace(/^v1a?,/, ''));
      const holdsFor = (signed: Buffer): boolean =>
        secret.some((one) => one.holdsFor(signed, signatures));
      const variant = (premise: string, content: (body: Buffer) => Buffer): SignatureVariant => ({
        code: 'signed_content',
        premise,
        holdsFor: (body) => holdsFor(content(body)),
      });
      const others = FAMILIES.flatMap((family) => headers.all(`${family}-id`));
      return {
        timestamp: claimedTime(time),
        holdsFor: (body) => holdsFor(signedContent(id, time, body)),
        holdsWith: (change, body) =>
          secretBytes(options.secret).some((bytes) => {
            const { key: changed } = parseStandardWebhooksKey(change(bytes));
            return changed?.holdsFor(signedContent(id, time, body), signatures) === true;
          }),
        variants: [
          ...others.map((other) =>
            variant('another id of the request is signed', (body) =>
              signedContent(other, time, body),
            ),
          ),
          variant('only the time and the body are signed', (body) =>
            Buffer.concat([Buffer.from(`${time}.`), body]),
          ),
          variant('only the body is signed', (body) => body),
          {
            code: 'signature_encoding',
            premise: 'it is written in hex',
            holdsFor: (body) =>
              secret.some((one) =>
                one.holdsFor(
                  signedContent(id, time, body),
                  signatures.map((each) => Buffer.from(each, 'hex').toString('base64')),
                ),
              ),
          },
        ],
      };
    },
    sign(message) {
      const { id, now } = message;
      const timestamp = new Date(now).toISOString();
      const { headers, body } = composeTest(message, ({ event: type, data }) => ({
        data: envelope ? { type, timestamp, data } : data,
      }));
      const time = writeTimestamp(now);
      const signed = signedContent(id, time, body);
      const signatures = secret.flatMap(({ version, sign }) =>
        sign === undefined ? [] : [`${version},${sign(signed)}`],
      );
      return {
        headers: {
          ...headers,
          'webhook-id': id,
          'webhook-timestamp': time,
          'webhook-signature': signatures.join(' '),
        },
        body,
      };
    },
  });
}

/** The headers of one family: a signature must not be completed from the other one. */
function readHeaders(headers: RequestHeaders): { id: string; time: string; signature: string } {
  const family =
    FAMILIES.find((name) => headers.get(`${name}-signature`) !== undefined) ?? FAMILIES[0];
  const id = signatureHeader(headers, `${family}-id`);
  if (id.length > 255) throw malformed('the id is longer than 255 characters');
  return {
    id,
    time: signatureHeader(headers, `${family}-timestamp`),
    signature: signatureHeader(headers, `${family}-signature`),
  };
}

function secretBytes(secret: StandardWebhooksOptions['secret']): Buffer[] {
  const all = [secret].flat() as readonly (string | Uint8Array)[];
  return all.flatMap((one) => {
    if (typeof one !== 'string') return [Buffer.from(one)];
    return /^wh[ps]k_/.test(one) ? [] : [Buffer.from(one.replace(/^whsec_/, ''), 'base64')];
  });
}
