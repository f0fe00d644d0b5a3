import type { Duration } from '../clock/duration.js';
import type { WebhookClock } from '../clock/webhook-clock.js';

/** What every store on PostgreSQL takes. All optional. */
export interface PostgresStoreOptions {
  /** Where its tables lie; default `webhooks`. */
  readonly schema?: string | undefined;
  /** How long the server may take to answer before the store counts as unavailable. */
  readonly timeout?: Duration | undefined;
  /** Default: the machine's clock. */
  readonly clock?: WebhookClock | undefined;
}
