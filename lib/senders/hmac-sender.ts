import { createHmac, hash } from 'node:crypto';
import { isSame } from '../keys/standard-webhooks-key.js';
import { readOptions } from '../options/read-options.js';
import {
  either,
  isOptions,
  object,
  oneOf,
  optional,
  required,
  rule,
  type Rule,
  text,
} from '../options/rules.js';
import type { RequestHeaders, SignatureVariant } from '../request/webhook-scheme.js';
import { HEADER_NAME, HEADER_NAMES, KEYS, SECRETS } from './option-rules.js';
import {
  type ComposeTest,
  composeTest,
  createSender,
  type Credentials,
  DECLARED,
  declaredParts,
  type DeclaredSenderOptions,
  SENDER,
  type SenderOptions,
  type SenderParts,
  type WebhookSender,
} from './sender.js';
import {
  claimedTime,
  malformed,
  readTimestamp,
  requireSignatures,
  signatureHeader,
  type TimeUnit,
  writeTimestamp,
} from './signature-header.js';

export interface SecretOptions extends SenderOptions {
  /** The secret, or several while it is rotated. Its UTF-8 bytes are the key, prefix included. */
  readonly secret: string | readonly (string | undefined)[] | undefined;
}

/** Where signatures are, and how they are written. */
export interface HmacSignature {
  /** The header that has the signatures. */
  readonly header: string;
  /** What a signature in the header begins with, such as `v1=`; default nothing. */
  readonly prefix?: string | undefined;
  /** Separates the parts of the header, such as `,`; default: the header has one part. */
  readonly separator?: string | undefined;
  /** Default `hex`. */
  readonly encoding?: 'hex' | 'base64' | 'base64url' | undefined;
  /** Default `sha256`. */
  readonly algorithm?: 'sha256' | 'sha512' | 'sha1' | undefined;
}

/**
 * Where the signed time is: in a header of its own, or in a part of the signature's header that begins with `prefix`. Its `unit` is `s`
 * (seconds since 1970), unless it is `ms` (milliseconds) or `iso` (ISO 8601 with a time zone).
 */
type HmacTimestamp = ({ readonly header: string } | { readonly prefix: string }) & {
  readonly unit?: TimeUnit | undefined;
};

/** How a sender signs requests by HMAC. */
export interface HmacSenderOptions extends DeclaredSenderOptions {
  /**
   * The secret, or several while it is rotated. The UTF-8 bytes of a string are the key, prefix included; bytes are taken as they are, for
   * a secret in base64 or hex: `Buffer.from(secret, 'base64')`.
   */
  readonly secret: string | Uint8Array | readonly (string | Uint8Array | undefined)[] | undefined;
  readonly signature: HmacSignature;
  readonly timestamp?: HmacTimestamp | undefined;
  /**
   * The signed bytes: text with `{body}`, `{timestamp}` if there is one, and `{header:<name>}` for the value of a header; default
   * `{body}`.
   */
  readonly signed?: string | undefined;
  /**
   * The event's id. Only return one that the signature covers: a copy with another unsigned id would be handled again. Default: the
   * digest of the body, so a second event with the same body is taken for a duplicate.
   */
  readonly id?: DeclaredSenderOptions['id'];
  /** Headers to keep in `event.claims.headers`, in lower case. No signature covers them. */
  readonly keptHeaders?: readonly string[] | undefined;
}

type Key = string | Uint8Array;

/** What is signed besides the body. */
interface SignedText {
  readonly time: string;
  /** Values of headers, by name. */
  readonly values: ReadonlyMap<string, string>;
}

/** Parts that a preset adds to the options. */
export interface HmacPreset
  extends
    Omit<HmacSenderOptions, 'secret' | 'event' | 'events' | 'challenge' | 'tolerance'>,
    Pick<SenderParts, 'identifying' | 'challenge' | 'preflight' | 'event' | 'split'> {
  readonly compose?: ComposeTest;
}

const PRESET_OPTIONS = object<SecretOptions>()({ ...SENDER, secret: required(SECRETS) });

const UNIT = optional(oneOf('s', 'ms', 'iso'));
const TIMESTAMP: Rule<HmacTimestamp> = either(
  (value) => isOptions(value) && 'prefix' in value,
  object<{ prefix: string; unit?: TimeUnit | undefined }>()({ prefix: text(), unit: UNIT }),
  object<{ header: string; unit?: TimeUnit | undefined }>()(
    { header: HEADER_NAME, unit: UNIT },
    { form: 'an object: { header } or { prefix }' },
  ),
);

/** What `signed` may name; everything else in braces would be signed as it is. */
const PLACEHOLDER = /\{(body|timestamp|header:[a-z0-9_-]+)\}/g;

const SIGNED: Rule<string> = rule(
  (value) =>
    typeof value === 'string' &&
    value.split('{body}').length === 2 &&
    !/\{[\w:-]*\}/.test(value.replaceAll(PLACEHOLDER, '')),
  "must be a string with one {body}, and may have {timestamp} and {header:<name>}, such as '{timestamp}.{body}'",
);

const OPTIONS = object<HmacSenderOptions>()(
  {
    ...DECLARED,
    tolerance: SENDER.tolerance,
    secret: required(KEYS),
    signature: required(
      object<HmacSignature>()({
        header: required(HEADER_NAME),
        prefix: optional(text()),
        separator: optional(text()),
        encoding: optional(oneOf('hex', 'base64', 'base64url')),
        algorithm: optional(oneOf('sha256', 'sha512', 'sha1')),
      }),
    ),
    timestamp: optional(TIMESTAMP),
    signed: optional(SIGNED),
    keptHeaders: optional(HEADER_NAMES),
  },
  {
    across({ timestamp, signed = '{body}', signature }, at) {
      if (at.has('timestamp', 'signed', 'signature')) return;
      const isSigned = signed.includes('{timestamp}');
      at.require(
        (timestamp !== undefined) === isSigned,
        'signed',
        isSigned
          ? 'has {timestamp}: say in "timestamp" where the request has it'
          : 'has no {timestamp}, so anyone could change the time: add it, or leave "timestamp" out',
      );
      at.require(
        timestamp === undefined || 'header' in timestamp || signature.separator !== undefined,
        'signature.separator',
        'is required, since the header has the time too',
      );
    },
  },
);

/**
 * A sender that signs the body, with or without a time, by HMAC.
 *
 * ```ts
 * hmacSender({
 *   name: 'acme',
 *   secret: env.ACME_SECRET,
 *   signature: { header: 'x-acme-signature', prefix: 'v1=', separator: ',' },
 *   timestamp: { prefix: 't=' },
 *   signed: '{timestamp}.{body}',
 *   event: ({ data }) => (data as { type: string }).type,
 * });
 * ```
 *
 * @throws {@link WebhookConfigurationError}
 */
export function hmacSender(options: HmacSenderOptions): WebhookSender {
  const { secret, tolerance, ...form } = readOptions(OPTIONS, options, 'hmacSender');
  return createHmacSender(declaredParts(form), { secret, tolerance });
}

/**
 * A sender with a fixed form.
 *
 * @param path - the function's name, for messages, and the sender's name by default
 */
export function hmacPreset(
  path: string,
  options: SecretOptions,
  preset: Omit<HmacPreset, 'name'> & Partial<Pick<HmacPreset, 'name'>>,
): WebhookSender {
  const { event = preset.event, ...read } = readOptions(PRESET_OPTIONS, options, path);
  return createHmacSender({ name: path, ...preset, event }, read);
}

function createHmacSender(
  preset: HmacPreset,
  { secret, tolerance }: { readonly secret: readonly Key[]; readonly tolerance: number },
): WebhookSender {
  const { signature, timestamp, signed = '{body}', compose } = preset;
  const { prefix = '', separator, encoding = 'hex', algorithm = 'sha256' } = signature;
  const [before, after] = signed.split('{body}') as [string, string];
  const signedHeaders = [...signed.matchAll(/\{header:([^}]+)\}/g)].map(([, name]) => name!);

  const macBytes = (
    key: Key,
    { time, values }: SignedText,
    body: Buffer,
    by = algorithm,
  ): Buffer => {
    const fill = (text: string): string =>
      text.replaceAll(PLACEHOLDER, (_, name: string) =>
        name === 'timestamp' ? time : values.get(name.slice('header:'.length))!,
      );
    return createHmac(by, key).update(fill(before)).update(body).update(fill(after)).digest();
  };
  const mac = (key: Key, text: SignedText, body: Buffer): string =>
    macBytes(key, text, body).toString(encoding);

  const readHeader = (headers: RequestHeaders): SignedText & { signatures: string[] } => {
    const value = signatureHeader(headers, signature.header);
    const parts = separator === undefined ? [value] : value.split(separator);
    const those = (start: string): string[] =>
      parts.flatMap((part) => (part.startsWith(start) ? part.slice(start.length) : []));
    const signatures = those(prefix);
    requireSignatures(signatures);
    const values = new Map(signedHeaders.map((name) => [name, signatureHeader(headers, name)]));
    if (timestamp === undefined) return { signatures, values, time: '' };
    if ('header' in timestamp) {
      return { signatures, values, time: signatureHeader(headers, timestamp.header) };
    }
    const [time, ...more] = those(timestamp.prefix);
    if (time === undefined || more.length > 0) {
      throw malformed(`the ${signature.header} header has no time, or several`);
    }
    return { signatures, values, time };
  };

  const read = (headers: RequestHeaders): Credentials => {
    const { signatures, ...text } = readHeader(headers);
    let holding: Key | undefined;
    return {
      timestamp: timestamp === undefined ? undefined : readTimestamp(text.time, timestamp.unit),
      holdFor(body) {
        for (const key of secret) {
          const expected = mac(key, text, body);
          for (const one of signatures) if (isSame(one, expected)) holding = key;
        }
        return holding !== undefined;
      },
      hmac: (text) => createHmac(algorithm, holding!).update(text).digest('hex'),
    };
  };

  return createSender({
    ...preset,
    present: [signature.header],
    tolerance,
    read,
    claim: read,
    diagnose(headers) {
      const { signatures, ...text } = readHeader(headers);
      const { time } = text;
      const holds = (expected: string): boolean => signatures.some((one) => isSame(one, expected));
      const variant = (
        code: SignatureVariant['code'],
        premise: string,
        write: (key: Key, body: Buffer) => string,
      ): SignatureVariant => ({
        code,
        premise,
        holdsFor: (body) => secret.some((key) => holds(write(key, body))),
      });
      return {
        timestamp: timestamp && claimedTime(time, timestamp.unit),
        holdsFor: (body) => secret.some((key) => holds(mac(key, text, body))),
        holdsWith: (change, body) =>
          secret.some((key) => {
            const changed = change(Buffer.from(key));
            return changed !== undefined && holds(mac(changed, text, body));
          }),
        variants: [
          ...(['hex', 'base64', 'base64url'] as const)
            .filter((one) => one !== encoding)
            .map((one) =>
              variant('signature_encoding', `it is written in ${one}`, (key, body) =>
                macBytes(key, text, body).toString(one),
              ),
            ),
          variant('signature_encoding', 'its digits are in upper case', (key, body) =>
            mac(key, text, body).toUpperCase(),
          ),
          ...(['sha1', 'sha256', 'sha512'] as const)
            .filter((one) => one !== algorithm)
            .map((one) =>
              variant('signature_algorithm', `it is an HMAC with ${one}`, (key, body) =>
                macBytes(key, text, body, one).toString(encoding),
              ),
            ),
          variant('signed_content', 'only the body is signed', (key, body) =>
            createHmac(algorithm, key).update(body).digest(encoding),
          ),
        ],
      };
    },
    sign(message) {
      const { headers, body: json } = composeTest(message, compose);
      const body = preset.id ? json : Buffer.concat([json, Buffer.from(markOf(message.id))]);
      const time = timestamp === undefined ? '' : writeTimestamp(message.now, timestamp.unit);
      const values = new Map(signedHeaders.map((name) => [name, headers[name] ?? message.id]));
      const signatures = secret.map((key) => `${prefix}${mac(key, { time, values }, body)}`);
      // A header with one part cannot have the signatures of several secrets.
      const parts = separator === undefined ? signatures.slice(0, 1) : signatures;
      Object.assign(headers, Object.fromEntries(values));
      if (timestamp !== undefined && 'header' in timestamp) headers[timestamp.header] = time;
      if (timestamp !== undefined && 'prefix' in timestamp) parts.unshift(timestamp.prefix + time);
      headers[signature.header] = parts.join(separator);
      return { headers, body };
    },
  });
}

/**
 * White space at the end of a test event's JSON. The body's digest is the only id that the sender has, so bodies of different events
 * must differ, and its data must not.
 */
function markOf(id: string): string {
  const bits = BigInt(`0x${hash('sha256', id).slice(0, 16)}`).toString(2);
  return bits.replaceAll('0', ' ').replaceAll('1', '\t');
}
