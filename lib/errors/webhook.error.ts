/** The part of a thrown value that is safe to log: its message may quote the data it failed on. */
export function errorName(error: unknown): string {
  return error instanceof Error ? error.name : typeof error;
}

/** Logs. An error of the application's logger must not change the outcome of what is logged. */
export function quietly(log: () => void): void {
  try {
    log();
  } catch {
    // There is nowhere else to report it.
  }
}

/**
 * The stable code of an error of this package; of any other error, its class. Safe to report, and of few values: unlike the class, an
 * application may set the `name` of each error.
 */
export function errorType(error: unknown): string {
  if (isWebhookError(error)) return error.code;
  return error instanceof Error ? className(error) : typeof error;
}

function className(error: Error): string {
  const { constructor } = Object.getPrototypeOf(error) as { readonly constructor?: unknown };
  const name: unknown = typeof constructor === 'function' ? constructor.name : undefined;
  return typeof name === 'string' && name !== '' ? name : 'Error';
}

/**
 * The package that an `import()` did not find: in the words of Node, Jest, Yarn PnP or Vite, which share no code. A file that is missing
 * in a package gives `undefined`.
 */
export function missingPackageOf(error: unknown): string | undefined {
  const words =
    /^(?:Cannot find (?:package|module)|Could not resolve|.+ tried to access) ['"]?((?:@[\w.-]+\/)?\w[\w.-]*)['", ]/;
  return words.exec((error as Error).message)?.[1];
}

/** Shared by all copies of the package in a process, so that each recognises the errors of the others. */
const BRAND = Symbol.for('nestjs-webhook-token/error');

/**
 * The base class of every error this package throws.
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

  /** @hidden */
  get [BRAND](): true {
    return true;
  }

  /** Name, code and message: safe to log, to store and to send. The cause, which may hold data of the application, is left out. */
  toJSON(): { readonly name: string; readonly code: string; readonly message: string } {
    return { name: this.name, code: this.code, message: this.message };
  }
}

// One getter instead of a member for each error: an error is created for every forged request. A bundler that renames classes
// changes the name too, so compare `code`.
Object.defineProperty(WebhookError.prototype, 'name', {
  configurable: true,
  get(this: WebhookError): string {
    return this.constructor.name;
  },
});

/**
 * Whether a value is an error of this package, or of another copy of it.
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
  /** No key of the issuer verifies the signature. */
  | 'bad_signature'
  /** The issuer is known, the `kid` is not. */
  | 'unknown_key'
  /** `iss` is not a trusted issuer. */
  | 'wrong_issuer'
  /** `aud` names another audience, or the token has one and the receiver has none configured. */
  | 'wrong_audience'
  | 'token_expired'
  /** `nbf` or `iat` is in the future, beyond the tolerance. */
  | 'token_not_yet_valid'
  /** `exp - iat` is longer than the verifier allows. */
  | 'token_too_old'
  /** The issuer may not send this event. */
  | 'event_forbidden'
  | 'missing_claim'
  | 'invalid_claim';

/** A token was refused, or could not be created. */
export class WebhookTokenError extends WebhookError<WebhookTokenErrorCode> {
  /** The invalid claim; set only after the signature was verified. */
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

/** Why the signature of a sender other than an issuer of tokens was refused. */
export type WebhookSignatureErrorCode =
  /** The request has no signature of the sender. */
  | 'missing_signature'
  /** A header of the signature is repeated, or has not the sender's form. */
  | 'malformed_signature'
  /** No signature of the request matches its body and a secret of the sender. */
  | 'invalid_signature'
  /** The signed time is too far from the receiver's clock, before or after it. */
  | 'timestamp_out_of_tolerance';

/** A request of a sender other than an issuer of tokens was not signed by it, or too long ago. */
export class WebhookSignatureError extends WebhookError<WebhookSignatureErrorCode> {}

/** Why a store, or a source of keys, failed. */
export type WebhookStoreErrorCode =
  /** It cannot be reached. */
  | 'store_unavailable'
  /** Its limit is reached, and it must not drop entries. */
  | 'store_full'
  /** The keys that verify the token are unavailable. */
  | 'keys_unavailable'
  /** The secret of an endpoint cannot be opened: its sealing key is missing, or the stored value was changed. */
  | 'sealed_secret_unreadable'
  /** The stored settings of an endpoint are invalid. */
  | 'endpoint_unreadable'
  /** Its tables are missing, or older than this version of the package: `npx nestjs-webhook-token migrate` brings them up to date. */
  | 'schema_behind'
  /** A newer version of the package has changed its tables; only `migrate()` reports it. */
  | 'schema_ahead';

/**
 * A replay store, a queue, an endpoint store or a source of keys failed. The caller fails closed and may
 * try again.
 */
export class WebhookStoreError extends WebhookError<WebhookStoreErrorCode> {}

/** Why nothing could be signed. */
export type WebhookSigningErrorCode =
  /** The signer threw, or did not return a signature of its algorithm. */
  | 'signing_failed'
  /** No key is valid now: there is a gap between the keys' windows, or a provider has no key. */
  | 'no_signing_key';

/** A token cannot be signed now. A later attempt may succeed. */
export class WebhookSigningError extends WebhookError<WebhookSigningErrorCode> {
  /**
   * Name, code, message and stack, but not the cause: it comes from the application's signer or provider, and
   * its message may hold anything. It is available as `cause`.
   *
   * @hidden
   */
  [Symbol.for('nodejs.util.inspect.custom')](): string {
    const stack = (this.stack ?? this.message).replace(/^Error\b/, this.name);
    return `${stack} { code: '${this.code}' }`;
  }
}

/**
 * `replayed`: the id was used before, for a handled event or for other content. `in_progress`: it is being handled now.
 * `lease_lost`: the handler ran longer than its lease, and another process may be handling the event.
 * `unsupported_option`: the event cannot be recorded in a transaction, by this store or by this handler.
 */
export type WebhookReplayErrorCode =
  'replayed' | 'in_progress' | 'lease_lost' | 'unsupported_option';

/** The event was presented before, or cannot be recorded as handled. */
export class WebhookReplayError extends WebhookError<WebhookReplayErrorCode> {}

/** Why a body was refused. */
export type WebhookPayloadErrorCode =
  /** A webhook is sent by HEAD or POST only. */
  | 'method_not_allowed'
  /** There is a body, and nothing in the token authenticates it. */
  | 'hash_required'
  /** The body does not match the digest in the token. */
  | 'hash_mismatch'
  /** The digest's algorithm or form is not supported, or there is no body to compare it with. */
  | 'hash_unsupported'
  /** The body is larger than the receiver accepts. */
  | 'payload_too_large'
  /** A content coding or charset the receiver does not decode. */
  | 'unsupported_encoding'
  /** The receiver does not accept this content type from the issuer. */
  | 'unsupported_content_type'
  /** The body is authentic and does not parse, or its data does not validate. */
  | 'invalid_payload'
  /** The sender closed the connection before the whole body had arrived. */
  | 'payload_incomplete'
  /** The application read the body before the webhook guard. */
  | 'payload_consumed'
  /** A large body cannot be written to a file: the disk is full, the directory is not writable, or there are too many at once. */
  | 'spool_unavailable';

/** A received or published payload was refused. */
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
  /** There is no such endpoint, or it belongs to another tenant. */
  | 'unknown_endpoint'
  /** The queue has no delivery with this id. */
  | 'unknown_delivery'
  /** This publisher or queue does not support the option. */
  | 'unsupported_option'
  /** The option's value is wrong. */
  | 'invalid_option'
  /** The data is not JSON, bytes came without a content type, or it is not valid data of a defined event. */
  | 'invalid_data'
  /** The event is not among those that `defineEvents` defined, or has no example to send. */
  | 'unknown_event'
  /** The id was used before, for another event or for other data. */
  | 'id_conflict'
  /** The application is shutting down. */
  | 'shutting_down'
  /** The caller's signal was aborted. */
  | 'aborted'
  /** An endpoint with this id exists. */
  | 'endpoint_exists'
  /** The endpoint was changed concurrently. */
  | 'endpoint_changed'
  /** A limit of `endpointLimits` is reached: endpoints of a tenant, keys of an endpoint, test events, or redeliveries. */
  | 'limit_reached';

/** An event was not accepted for delivery, or an endpoint was not changed. Nothing was recorded. */
export class WebhookDeliveryError extends WebhookError<WebhookDeliveryErrorCode> {
  /** Each invalid member, with its remedy; only with `invalid_option`, for the description of an endpoint. */
  readonly problems?: readonly ConfigurationProblem[];

  constructor(
    code: WebhookDeliveryErrorCode,
    message: string,
    options?: ErrorOptions & { problems?: readonly ConfigurationProblem[] },
  ) {
    super(code, message, options?.cause === undefined ? undefined : { cause: options.cause });
    if (options?.problems !== undefined) this.problems = options.problems;
  }
}

/** One problem of a configuration, and its remedy. */
export interface ConfigurationProblem {
  /** The option, as a path from the root: `receiver.issuers[0].secret`. */
  readonly path: string;
  /** What is wrong, and the remedy. Never the value itself: it may be a secret. */
  readonly message: string;
}

/**
 * The configuration cannot work. Start-up fails with every problem listed, each with its remedy.
 */
export class WebhookConfigurationError extends WebhookError<'invalid_configuration'> {
  /** @param options.cause - the error of the source that the configuration was read from */
  constructor(
    readonly problems: readonly ConfigurationProblem[],
    options: ErrorOptions = {},
  ) {
    super(
      'invalid_configuration',
      describe(problems),
      options.cause === undefined ? undefined : options,
    );
  }
}

function describe(problems: readonly ConfigurationProblem[]): string {
  const lines = problems.map(({ path, message }) => `  - ${path}: ${message}`);
  return `The webhook configuration is invalid:\n${lines.join('\n')}`;
}
