/** What can be logged of anything that was thrown: its message may quote what it failed on. */
export function errorName(error: unknown): string {
  return error instanceof Error ? error.name : typeof error;
}

/** Shared by every copy of the package in a process, so that errors are recognised across two of them. */
const BRAND = Symbol.for('nestjs-webhook-token/error');

/** What {@link WebhookError.toJSON} gives: safe to log, to store and to send. */
export interface WebhookErrorJson {
  readonly name: string;
  readonly code: string;
  readonly message: string;
}

/**
 * The root of every error this package throws.
 *
 * `code` is the contract: stable over versions, one per case. The message may change. Neither the
 * message nor `toJSON()` nor `inspect` ever shows a secret, a token or a payload.
 */
export abstract class WebhookError<Code extends string = string> extends Error {
  constructor(
    readonly code: Code,
    message: string,
    options?: ErrorOptions,
  ) {
    super(message, options);
  }

  /** @internal */
  get [BRAND](): true {
    return true;
  }

  /** Name, code and message; never the cause, which belongs to somebody else. */
  toJSON(): WebhookErrorJson {
    return { name: this.name, code: this.code, message: this.message };
  }
}

// The name of the class that is thrown, without each of them having to say it, and once for all errors: a refusal is made for
// each request that somebody forges. A bundler that renames classes renames it too: `code` is what to compare.
Object.defineProperty(WebhookError.prototype, 'name', {
  configurable: true,
  get(this: WebhookError): string {
    return this.constructor.name;
  },
});

/**
 * Tells whether a value is an error of this package, also when it comes from a second copy of it.
 *
 * @param error - any caught value
 * @param code - when given, the code must be this one too
 */
export function isWebhookError(error: unknown, code?: string): error is WebhookError {
  return (
    error instanceof Error &&
    (error as { [BRAND]?: unknown })[BRAND] === true &&
    (code === undefined || (error as WebhookError).code === code)
  );
}

/** Why a token was refused. */
export type WebhookTokenErrorCode =
  /** No credentials, or another scheme than Bearer. */
  | 'missing_token'
  /** The Authorization header is repeated, comma-joined or not `Bearer <token>`. */
  | 'malformed_authorization'
  /** Longer than 16384 bytes. */
  | 'token_too_large'
  /** Not three canonical base64url parts, or a header that is not allowed. */
  | 'invalid_token'
  /** The signature does not hold under any key of the issuer. */
  | 'bad_signature'
  /** The issuer is known, the `kid` is not. */
  | 'unknown_key'
  /** `iss` is nobody this verifier trusts. */
  | 'wrong_issuer'
  /** `aud` names somebody else, or the token has one and none is configured. */
  | 'wrong_audience'
  | 'token_expired'
  /** `nbf` or `iat` lies in the future, beyond the tolerance. */
  | 'token_not_yet_valid'
  /** `exp - iat` is longer than the verifier allows. */
  | 'token_too_old'
  /** The issuer may not send this event. */
  | 'event_forbidden'
  | 'missing_claim'
  | 'invalid_claim';

/** A token was refused, or could not be made. */
export class WebhookTokenError extends WebhookError<WebhookTokenErrorCode> {
  /** The claim at fault, named only once the signature has held. */
  readonly claim?: string;

  constructor(
    code: WebhookTokenErrorCode,
    message: string,
    options?: ErrorOptions & { claim?: string },
  ) {
    super(code, message, options);
    if (options?.claim !== undefined) this.claim = options.claim;
  }
}

/** Why a store does not do its part. */
export type WebhookStoreErrorCode =
  /** It cannot be reached. */
  | 'store_unavailable'
  /** Its bound is reached, and nothing may be dropped. */
  | 'store_full'
  /** The keys a token would be checked with cannot be had now. */
  | 'keys_unavailable'
  /** The secret of an endpoint cannot be opened: its sealing key is missing, or it is not what was sealed. */
  | 'sealed_secret_unreadable'
  /** What is stored of an endpoint cannot be used. */
  | 'endpoint_unreadable'
  /** Its tables are missing, or older than this version of the package: `npx nestjs-webhook-token migrate` brings them up to date. */
  | 'schema_behind'
  /** A newer version of the package has changed its tables; told by `migrate()` alone. */
  | 'schema_ahead';

/**
 * A replay store, a delivery queue, an endpoint store or a source of keys does not do its part; the caller fails
 * closed and may try again.
 */
export class WebhookStoreError extends WebhookError<WebhookStoreErrorCode> {}

/** Why nothing could be signed. */
export type WebhookSigningErrorCode =
  /** The signer threw, or what it gave is no signature of its algorithm. */
  | 'signing_failed'
  /** No key may be signed with at this time: their windows leave a gap, or a provider gives none. */
  | 'no_signing_key';

/** A token could not be signed now; later it may. */
export class WebhookSigningError extends WebhookError<WebhookSigningErrorCode> {
  /**
   * Name, code, message and stack, but not the cause: it comes from the application's signer or provider, and
   * its text may hold anything. Whoever wants it reads `cause`.
   *
   * @internal
   */
  [Symbol.for('nodejs.util.inspect.custom')](): string {
    const stack = (this.stack ?? this.message).replace(/^Error\b/, this.name);
    return `${stack} { code: '${this.code}' }`;
  }
}

/**
 * `replayed`: the id was seen, done or with other content. `in_progress`: it is being handled now.
 * `lease_lost`: the handler has held the event for longer than it could, and another may be at it.
 * `unsupported_option`: the event cannot be recorded in a transaction, by this store or by this handler.
 */
export type WebhookReplayErrorCode =
  'replayed' | 'in_progress' | 'lease_lost' | 'unsupported_option';

/** The event was presented before, or cannot be recorded as handled. */
export class WebhookReplayError extends WebhookError<WebhookReplayErrorCode> {}

/** Why a body was refused. */
export type WebhookPayloadErrorCode =
  /** A payload travels by HEAD or POST, and by nothing else. */
  | 'method_not_allowed'
  /** A body arrived, and nothing in the token authenticates it. */
  | 'hash_required'
  /** The body is not the one the token speaks of. */
  | 'hash_mismatch'
  /** The digest's algorithm or form is none of the six, or there is no body it could be checked on. */
  | 'hash_unsupported'
  /** The body is larger than the receiver takes. */
  | 'payload_too_large'
  /** A content coding or charset the receiver does not decode. */
  | 'unsupported_encoding'
  /** The receiver does not accept this content type from the issuer. */
  | 'unsupported_content_type'
  /** The body is authentic and does not parse, or its data does not validate. */
  | 'invalid_payload'
  /** The sender went away before the whole body had arrived. */
  | 'payload_incomplete'
  /** Something in the application read the body before the webhook guard ran. */
  | 'payload_consumed'
  /** A large body cannot be kept in a file: no room, no right to write there, or too many of them at once. */
  | 'spool_unavailable';

/** A payload was refused, on its way in or out. */
export class WebhookPayloadError extends WebhookError<WebhookPayloadErrorCode> {
  /** The methods the token's wire format has; only with `method_not_allowed`. */
  readonly methods?: readonly string[];

  constructor(
    code: WebhookPayloadErrorCode,
    message: string,
    options?: ErrorOptions & { methods?: readonly string[] },
  ) {
    super(code, message, options);
    if (options?.methods !== undefined) this.methods = options.methods;
  }
}

/** The egress guard refuses the URL, or an address it resolves to. */
export class WebhookDestinationBlockedError extends WebhookError<'destination_blocked'> {
  constructor(message: string) {
    super('destination_blocked', message);
  }
}

/** Why an event could not be accepted for delivery. */
export type WebhookDeliveryErrorCode =
  /** There is no such endpoint, or it is another tenant's. */
  | 'unknown_endpoint'
  /** The delivery log knows no delivery of this id. */
  | 'unknown_delivery'
  /** The option cannot be honoured by this publisher or queue. */
  | 'unsupported_option'
  /** The option's value is wrong. */
  | 'invalid_option'
  /** The data is not JSON, or bytes came without a content type. */
  | 'invalid_data'
  /** The id was used before, for another event or for other data. */
  | 'id_conflict'
  /** The application is shutting down. */
  | 'shutting_down'
  /** The caller's signal was aborted. */
  | 'aborted'
  /** An endpoint with this id exists. */
  | 'endpoint_exists'
  /** Somebody else changed the endpoint at the same time. */
  | 'endpoint_changed';

/** An event was not accepted for delivery, or an endpoint not changed; nothing of it was recorded. */
export class WebhookDeliveryError extends WebhookError<WebhookDeliveryErrorCode> {
  /** Each member that is wrong, with its remedy; only with `invalid_option`, where an endpoint was described. */
  readonly faults?: readonly ConfigurationFault[];

  constructor(
    code: WebhookDeliveryErrorCode,
    message: string,
    options?: ErrorOptions & { faults?: readonly ConfigurationFault[] },
  ) {
    super(code, message, options?.cause === undefined ? undefined : { cause: options.cause });
    if (options?.faults !== undefined) this.faults = options.faults;
  }
}

/** One fault of a configuration: where it is, and what to do about it. */
export interface ConfigurationFault {
  /** The option, as a path from the root: `receiver.issuers[0].secret`. */
  readonly path: string;
  /** What is wrong, and the remedy. Never the value itself: it may be a secret. */
  readonly message: string;
}

/**
 * The configuration cannot work. Start-up fails with every fault listed, each with its remedy.
 */
export class WebhookConfigurationError extends WebhookError<'invalid_configuration'> {
  /** @param options.cause - what a source of configuration failed with */
  constructor(
    readonly faults: readonly ConfigurationFault[],
    options: ErrorOptions = {},
  ) {
    super(
      'invalid_configuration',
      describe(faults),
      options.cause === undefined ? undefined : options,
    );
  }
}

function describe(faults: readonly ConfigurationFault[]): string {
  const lines = faults.map(({ path, message }) => `  - ${path}: ${message}`);
  return `The webhook configuration has ${faults.length === 1 ? 'a fault' : `${faults.length} faults`}:\n${lines.join('\n')}`;
}
