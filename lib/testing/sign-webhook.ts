import type { WebhookClock } from '../clock/webhook-clock.js';
import { WebhookDeliveryError } from '../errors/webhook.error.js';
import { readOptions } from '../options/read-options.js';
import {
  CLOCK,
  flag,
  func,
  object,
  oneOf,
  optional,
  type Read,
  required,
  seconds,
  unchecked,
} from '../options/rules.js';
import { ENDPOINT_SETTINGS } from '../sending/endpoint.js';
import { encodePayload } from '../sending/event-draft.js';
import { inlinePayload } from '../sending/request.composer.js';
import type { WebhookEventData, WebhookEventName } from '../token/webhook-event-map.js';
import type { TokenClock } from '../token/validate-claims.js';
import { digest } from '../token/payload-hash.js';
import { createTokenSigner, type TokenSignerOptions } from '../token/token-signer.js';
import { rulesOf } from '../token/profiles/profile.js';
import {
  DEFAULT_PROFILE,
  type HashAlgorithm,
  MAX_INLINE_BYTES,
  WEBHOOK_PROFILES,
} from '../token/webhook-token.constants.js';

/** The sender's key, and the form of the request. */
export interface SignWebhookOptions extends Omit<TokenSignerOptions, 'key'> {
  /** A shared HS256 secret. */
  readonly secret?: string | undefined;
  /** A key with its algorithm, instead of `secret`. */
  readonly key?: TokenSignerOptions['key'] | undefined;
  /**
   * Default `auto`: HEAD for an object of up to 6000 bytes and for no data, if the profile supports it; else POST. A publisher also
   * limits the request head (`maxHeadBytes`): by default it sends objects of more than about 4.8 kB by POST.
   */
  readonly method?: 'auto' | 'HEAD' | 'POST' | undefined;
  /** The media type; required for bytes. */
  readonly contentType?: string | undefined;
  /** Default `sha256`, and `sha3-256` for the profile `swt-draft-00`. */
  readonly hash?: HashAlgorithm | undefined;
  /** The event's id (`txn`); default none, so that its `jti` identifies the event. */
  readonly id?: string | undefined;
  /** The token's own id; default a random UUID. */
  readonly jti?: string | undefined;
  /** Number of earlier attempts; only the profile `swt-draft-02` sends it. */
  readonly retryCount?: number | undefined;
  readonly audience?: string | readonly string[] | undefined;
  readonly subject?: string | undefined;
  /** The time of the token, such as the receiver's `TestClock`; `now` takes precedence. Default: the system clock. */
  readonly clock?: WebhookClock | undefined;
}

const { audience, subject, method, hash } = ENDPOINT_SETTINGS;

/** The rules of {@link SignWebhookOptions}, for the options that extend them. */
export const SIGN_WEBHOOK = {
  issuer: required(unchecked<string>()),
  lifetime: optional(seconds),
  profile: optional(oneOf(...WEBHOOK_PROFILES)),
  now: optional(func<TokenClock>('() => milliseconds')),
  allowWeakSecrets: optional(flag),
  secret: unchecked<string | undefined>(),
  key: unchecked<TokenSignerOptions['key'] | undefined>(),
  method,
  contentType: unchecked<string | undefined>(),
  hash,
  id: unchecked<string | undefined>(),
  jti: unchecked<string | undefined>(),
  retryCount: unchecked<number | undefined>(),
  audience,
  subject,
  clock: optional(CLOCK),
};

const OPTIONS = object<SignWebhookOptions>()(SIGN_WEBHOOK);

/** A signed request, for any HTTP client. */
export interface SignedTestWebhook {
  readonly method: 'HEAD' | 'POST';
  readonly headers: Record<string, string>;
  /** The exact bytes to send; `undefined` for HEAD, and for an event without data. */
  readonly body: Buffer<ArrayBuffer> | undefined;
  /** Empty if a sender other than an issuer of tokens signed it. */
  readonly token: string;
}

/**
 * Signs an event as a sender would. Send the request to a receiver under test, or tamper with it first.
 *
 * ```ts
 * const { method, headers, body } = await signWebhook('order.created', order, { issuer, secret });
 * await fetch(`${await app.getUrl()}/webhooks`, { method, headers, body });
 * ```
 *
 * @param data - a JSON value, or a Buffer or Uint8Array together with the option `contentType`
 * @throws {@link WebhookDeliveryError} `invalid_data`, or `invalid_option` if HEAD is required and cannot carry the data;
 *   {@link WebhookConfigurationError} for an invalid key
 */
export async function signWebhook<Event extends WebhookEventName>(
  event: Event,
  data: WebhookEventData<Event> | Uint8Array | undefined,
  options: SignWebhookOptions,
): Promise<SignedTestWebhook> {
  return signRequest(event, data, readOptions(OPTIONS, options, 'signWebhook'));
}

export async function signRequest(
  event: string,
  data: unknown,
  options: Read<typeof OPTIONS>,
): Promise<SignedTestWebhook> {
  const { secret, key = secret ?? '', clock } = options;
  const rules = rulesOf(options.profile ?? DEFAULT_PROFILE);
  const algorithm = options.hash ?? rules.defaultHash;
  const now = options.now ?? (clock && (() => clock.now()));
  const signer = createTokenSigner({
    issuer: options.issuer,
    lifetime: options.lifetime,
    profile: options.profile,
    allowWeakSecrets: options.allowWeakSecrets,
    key,
    now,
  });
  const payload = encodePayload(data, options.contentType);
  const byHead = options.method !== 'POST' && rules.methods.has('HEAD');
  const inline = byHead ? inlinePayload(payload) : undefined;
  if (options.method === 'HEAD' && inline === undefined) throw headCannotCarry();
  const body =
    inline !== undefined || payload.bytes === undefined ? undefined : Buffer.from(payload.bytes);
  const isHashed = inline === undefined && (body !== undefined || rules.hashesEmptyBody);
  const token = await signer.sign({
    event,
    ...inline,
    ...(isHashed && {
      hash: digest(algorithm, body ?? Buffer.alloc(0)),
      size: body?.byteLength ?? 0,
    }),
    retryCount: options.retryCount,
    audience: options.audience,
    subject: options.subject,
    id: options.jti,
    txn: options.id,
  });
  return {
    method: inline === undefined ? 'POST' : 'HEAD',
    headers: { authorization: `Bearer ${token}`, 'content-type': payload.contentType },
    body,
    token,
  };
}

function headCannotCarry(): WebhookDeliveryError {
  return new WebhookDeliveryError(
    'invalid_option',
    `HEAD cannot carry this payload; use the method 'auto'. HEAD needs a profile that has it, and no data or a JSON object of at most ${MAX_INLINE_BYTES} bytes. The object must not consist of hash, size and hashAlg only, which receivers read as a reference to a body.`,
  );
}
