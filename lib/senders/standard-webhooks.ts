import {
  createHmac,
  createPrivateKey,
  createPublicKey,
  type KeyObject,
  sign as signBytes,
  verify as verifyBytes,
} from 'node:crypto';
import { readOptions } from '../options/read-options.js';
import { flag, object, optional, required, type Rule } from '../options/rules.js';
import type { RequestHeaders } from '../request/webhook-scheme.js';
import {
  createSender,
  type Credentials,
  SENDER,
  type SenderOptions,
  type WebhookSender,
} from './sender.js';
import {
  isSame,
  malformed,
  readTimestamp,
  requireSignatures,
  signatureHeader,
  stringAt,
} from './signature-header.js';

/** Secrets of a sender of Standard Webhooks. */
export interface StandardWebhooksOptions extends SenderOptions {
  /**
   * The secret, or several while it is rotated: `whsec_` and base64; or an Ed25519 key of the sender, `whpk_` and base64. Bytes are
   * taken as they are, for a sender whose secret is plain text: `Buffer.from(secret)`.
   */
  readonly secret: string | Uint8Array | readonly (string | Uint8Array)[];
  /** Whether `event.data` is the member `data` of a body with `type` and `data`; default `true`. Otherwise it is the whole body. */
  readonly envelope?: boolean | undefined;
}

/** One secret or public key, and the version of its signatures. */
interface Key {
  readonly version: 'v1' | 'v1a';
  /** Whether one of the signatures holds. */
  holdsFor(signed: Buffer, signatures: readonly string[]): boolean;
  /** Base64; absent if the private key is not known. */
  sign?(signed: Buffer): string;
}

const FORM = 'must be "whsec_" or "whpk_" followed by base64, or bytes';
const REQUIRED = 'is undefined; is the environment variable set?';

const key: Rule<Key> = (value, at, name) => {
  const add = (message: string): never => at.add(name, message) as never;
  if (value === undefined || value === null) return add(REQUIRED);
  if (value instanceof Uint8Array) {
    return value.length === 0 ? add('must not be empty') : hmacKey(Buffer.from(value));
  }
  if (typeof value !== 'string') return add(FORM);
  const [, prefix, encoded] = /^(whsec_|whpk_|whsk_)?(.*)$/s.exec(value)!;
  const bytes = Buffer.from(encoded!, 'base64');
  const isBase64 = bytes.toString('base64').replace(/=+$/, '') === encoded!.replace(/={1,2}$/, '');
  if (!isBase64) return add(FORM);
  if (bytes.length === 0) return add('must not be empty');
  if (prefix === 'whpk_') {
    return bytes.length === 32 ? ed25519Key(bytes) : add('must have 32 bytes after "whpk_"');
  }
  if (prefix === 'whsk_') {
    return bytes.length === 64
      ? ed25519Key(bytes.subarray(32), bytes.subarray(0, 32))
      : add('must have 64 bytes after "whsk_"');
  }
  return hmacKey(bytes);
};

/** One secret or a list of them. */
const keys: Rule<readonly Key[]> = (value, at, name) => {
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
        const signed = Buffer.concat([Buffer.from(`${id}.${time}.`), body]);
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
    read,
    claim: read,
    sign({ event: type, data, id, now }) {
      const timestamp = new Date(now).toISOString();
      const body = Buffer.from(
        JSON.stringify(envelope ? { type, timestamp, data } : (data ?? null)),
      );
      const time = String(Math.floor(now / 1_000));
      const signed = Buffer.concat([Buffer.from(`${id}.${time}.`), body]);
      const signatures = secret.flatMap(({ version, sign }) =>
        sign === undefined ? [] : [`${version},${sign(signed)}`],
      );
      return {
        headers: {
          'content-type': 'application/json',
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

function hmacKey(secret: Buffer): Key {
  const sign = (signed: Buffer): string =>
    createHmac('sha256', secret).update(signed).digest('base64');
  return {
    version: 'v1',
    sign,
    holdsFor(signed, signatures) {
      const expected = sign(signed);
      return signatures.map((one) => isSame(one, expected)).some((same) => same);
    },
  };
}

/** The head of an Ed25519 key in DER: RFC 8410, sections 4 and 7. */
const SPKI = Buffer.from('302a300506032b6570032100', 'hex');
const PKCS8 = Buffer.from('302e020100300506032b657004220420', 'hex');

function ed25519Key(point: Buffer, seed?: Buffer): Key {
  const der = (head: Buffer, tail: Buffer): Buffer => Buffer.concat([head, tail]);
  const publicKey = createPublicKey({ key: der(SPKI, point), format: 'der', type: 'spki' });
  const privateKey: KeyObject | undefined =
    seed && createPrivateKey({ key: der(PKCS8, seed), format: 'der', type: 'pkcs8' });
  return {
    version: 'v1a',
    ...(privateKey && {
      sign: (signed: Buffer) => signBytes(null, signed, privateKey).toString('base64'),
    }),
    holdsFor: (signed, signatures) =>
      signatures.some((one) => {
        const bytes = Buffer.from(one, 'base64');
        // Node ignores characters that are not base64.
        const isCanonical = bytes.length === 64 && bytes.toString('base64') === one;
        return isCanonical && verifyBytes(null, signed, publicKey, bytes);
      }),
  };
}
