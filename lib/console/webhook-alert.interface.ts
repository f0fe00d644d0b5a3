import type { Duration } from '../clock/duration.js';

/** Something that operators and the tenant should know. It contains no URL of an endpoint, no payload and no secret. */
export interface WebhookAlert {
  readonly type:
    /** The endpoint has failed for `failingFor`. */
    | 'endpoint-failing'
    /** The endpoint receives nothing more: it answered 410, or has failed for too long. */
    | 'endpoint-disabled'
    /** It works again after one of these. */
    | 'endpoint-recovered'
    /** The oldest due delivery is late by `lag`. */
    | 'queue-lagging'
    /** No delivery is late any more. */
    | 'queue-recovered';
  readonly at: Date;
  /** When the failure or the delay began. */
  readonly since: Date;
  /** Absent for alerts of the queue. */
  readonly endpointId?: string;
  /** Whose endpoint it is; absent if it belongs to no tenant. */
  readonly tenant?: string;
  /** Why, such as `http_503`. */
  readonly reason?: string;
  /** With `queue-lagging`: by how many milliseconds the oldest due delivery was late when the alert began. */
  readonly lagMs?: number;
  /** The endpoint in the console, for operators; absent without `alerts.url`. */
  readonly consoleUrl?: string;
  /** The endpoint in the portal, for a tenant with a session; absent without a portal. Make a link for others. */
  readonly portalUrl?: string;
}

/** When alerts are sent, and how. */
export interface WebhookAlertOptions {
  /** Sends an alert. If it rejects, the error is logged, and an alert that a failure began is sent again a minute later. */
  readonly send: (alert: WebhookAlert) => unknown;
  /** How long an endpoint fails before an alert; default `'5m'`. */
  readonly failingFor?: Duration | undefined;
  /** By how much the oldest due delivery is late before an alert; default `'5m'`. */
  readonly lag?: Duration | undefined;
  /** Where operators reach the console, for the link of an alert: `https://ops.example/webhooks/console`. */
  readonly url?: string | undefined;
}
