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
