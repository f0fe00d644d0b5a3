import type { Duration } from '../clock/duration.js';

/** Where the publisher's public keys are served. */
export interface WebhookJwksOptions {
  /** Outside the global prefix; default `'/.well-known/webhook-keys'`. */
  readonly path?: string | undefined;
  /** How long receivers and caches may keep it; default `'5m'`. */
  readonly maxAge?: Duration | undefined;
}

/** The options, checked and filled. */
export interface ResolvedJwks {
  readonly path: string;
  /** Milliseconds. */
  readonly maxAge: number;
}
