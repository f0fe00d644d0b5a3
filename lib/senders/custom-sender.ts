import { inTime, SystemClock } from '../clock/webhook-clock.js';
import {
  errorName,
  WebhookConfigurationError,
  WebhookStoreError,
} from '../errors/webhook.error.js';
import { readOptions } from '../options/read-options.js';
import { flag, func, object, optional, required } from '../options/rules.js';
import type { RequestHeaders } from '../request/webhook-scheme.js';
import { HEADER_NAMES } from './option-rules.js';
import {
  createSender,
  DECLARED,
  declaredParts,
  type DeclaredSenderOptions,
  type Proof,
  SENDER,
  type WebhookSender,
} from './sender.js';

/** What a signature covers besides the body. */
type SignedFacts = Pick<Proof, 'timestamp' | 'id'>;

/** A sender whose requests the application verifies. */
export interface CustomSenderOptions extends DeclaredSenderOptions {
  /**
   * Verifies a request before its body is parsed. Return `false` for a request that is not authentic; for an authentic one, `true` or what
   * the signature also covers: the event's `id`, and the `timestamp` in seconds since the epoch, which is checked against `tolerance`. If it
   * throws or rejects, for example because a key cannot be fetched, the answer is 503, and the sender repeats the request.
   */
  readonly verify: (request: {
    /** Names are in lower case. */
    readonly headers: RequestHeaders;
    readonly body: Buffer;
    /** Path and query. */
    readonly target: string | undefined;
  }) => boolean | SignedFacts | Promise<boolean | SignedFacts>;
  /** Whether `verify` covers the body; default `true`. With `false`, `event.bodyVerified` is `false`. */
  readonly bodyVerified?: boolean | undefined;
  /** The event's id; default: that of `verify`, else the digest of the body, so a second event with the same body is taken for a duplicate. */
  readonly id?: DeclaredSenderOptions['id'];
  /** Headers to keep in `event.claims.headers`, in lower case. */
  readonly keptHeaders?: readonly string[] | undefined;
  /** Signs a test event as the sender would; required for `deliverWebhook(app, event, data, { sender })`. `now` is in milliseconds. */
  readonly sign?:
    | ((message: {
        readonly event: string;
        readonly data: unknown;
        readonly id: string;
        readonly now: number;
      }) => { readonly headers: Readonly<Record<string, string>>; readonly body: string | Buffer })
    | undefined;
}

const OPTIONS = object<CustomSenderOptions>()({
  ...DECLARED,
  tolerance: SENDER.tolerance,
  verify: required(
    func<CustomSenderOptions['verify']>(
      '({ headers, body, target }) => boolean or { id, timestamp }',
    ),
  ),
  bodyVerified: optional(flag, true),
  keptHeaders: optional(HEADER_NAMES),
  sign: optional(
    func<NonNullable<CustomSenderOptions['sign']>>(
      '({ event, data, id, now }) => { headers, body }',
    ),
  ),
});

/** Milliseconds that `verify` may take: a request that is never answered would also hold up the shutdown. */
const VERIFY_TIMEOUT = 10_000;
const CLOCK = new SystemClock();

function tooLong(): Error {
  return new Error(`it did not end within ${VERIFY_TIMEOUT / 1_000} s`);
}

/**
 * A sender that no other function describes, such as one that signs by Ed25519 or ECDSA, or that has its signature in the body.
 *
 * ```ts
 * customSender({
 *   name: 'acme',
 *   verify: ({ headers, body }) => acmeSdk.isAuthentic(body, headers.get('x-acme-signature')),
 *   event: ({ data }) => (data as { type: string }).type,
 * });
 * ```
 *
 * @throws {@link WebhookConfigurationError}
 */
export function customSender(options: CustomSenderOptions): WebhookSender {
  const { verify, sign, ...form } = readOptions(OPTIONS, options, 'customSender');
  const credentialHeaders = new Set<string>();
  const noted = (name: string): string => {
    credentialHeaders.add(name.toLowerCase());
    return name;
  };
  return createSender({
    ...declaredParts(form),
    present: [],
    credentialHeaders,
    hasCredentials: () => true,
    read: (headers) => ({
      async holdFor(body, { target }): Promise<boolean | Proof> {
        const watched: RequestHeaders = {
          get: (name) => headers.get(noted(name)),
          all: (name) => headers.all(noted(name)),
        };
        try {
          const call = async () => verify({ headers: watched, body, target });
          const proof: unknown = await inTime(CLOCK, VERIFY_TIMEOUT, call, tooLong);
          if (typeof proof === 'boolean') return proof;
          const { id, timestamp } = (proof ?? {}) as SignedFacts;
          // A function that returns nothing has verified nothing.
          return id !== undefined || timestamp !== undefined ? { id, timestamp } : false;
        } catch (error) {
          throw new WebhookStoreError(
            'keys_unavailable',
            `the function "verify" of the sender failed: ${errorName(error)}`,
            { cause: error },
          );
        }
      },
    }),
    sign(message) {
      if (sign === undefined) {
        throw new WebhookConfigurationError([
          { path: `${form.name}.sign`, message: 'is required to sign a test' },
        ]);
      }
      const { headers, body } = sign(message);
      return {
        headers: { 'content-type': 'application/json', ...headers },
        body: Buffer.from(body as Buffer),
      };
    },
  });
}
