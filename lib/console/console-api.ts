/**
 * The JSON API of the delivery console and of the partner portal.
 *
 * Types only and without imports, so that the page compiles against the file as it is. All URLs are relative to the page, which is
 * always served with a slash at the end: `GET ./api/session`. This keeps the page independent of the global prefix, the version and
 * the sub-path of a proxy.
 *
 * - **Start.** The page calls `GET ./api/session` first. It reports what the page may do (`capabilities`), which parts exist
 *   (`features`), and the brand. The portal answers 401 `session_required` until the page has exchanged the token of a link, in the
 *   fragment `#token=…`, with `POST ./api/session`.
 * - **Errors** are `application/problem+json` with a stable `code` ({@link ConsoleProblem}). Guards of the application answer in
 *   their own format: show the status for a body without `code`.
 * - **Changes of state** (`POST`, `PATCH`, `DELETE`) need the header `Webhook-Console: 1` and, with a body, `Content-Type:
 *   application/json`. The server also refuses another origin (403 `cross_site_request`).
 * - **Times** are ISO 8601 in UTC. **Durations** are milliseconds. A member without a value is absent.
 * - **Lists** take `after` and `limit` (1 to 100, default 50). `next` is opaque; pass it as `after` with the same filters. It is
 *   absent on the last page. An unknown query parameter is refused (400 `invalid_option`).
 * - **Strings** of partners, events, headers, payloads and answers are hostile: insert them as text, never as HTML.
 * - **Tenants.** In the portal, every call is limited to the tenant of the session. The query parameter `tenant` may repeat it; any
 *   other value is refused (403 `wrong_tenant`), and an id of another tenant is rejected with 404.
 *
 * | Call | Capability | Answer |
 * |---|---|---|
 * | `GET api/session` | | {@link ConsoleSession} |
 * | `POST api/session` {@link SessionExchange} | portal only | {@link ConsoleSession} |
 * | `DELETE api/session` | portal only | 204 |
 * | `GET api/overview` {@link OverviewQuery} | `view` | {@link ConsoleOverview} |
 * | `GET api/stats` {@link StatsQuery} | `view` | {@link ConsoleStats} |
 * | `GET api/deliveries` {@link DeliveryQuery} | `view` | {@link DeliveryList} |
 * | `GET api/deliveries/:id` | `view` | {@link DeliveryDetails} |
 * | `GET api/deliveries/:id/payload` | `view-payload` | {@link ConsolePayload} |
 * | `POST api/deliveries/redeliver` {@link RedeliverRequest} | `redeliver` | {@link RedeliverAnswer} |
 * | `POST api/deliveries/:id/skip` | `redeliver` | {@link SkipAnswer} |
 * | `GET api/endpoints` {@link EndpointQuery} | `view` | {@link EndpointList} |
 * | `GET api/endpoints/:id` | `view` | {@link EndpointRow} |
 * | `POST api/endpoints` {@link NewEndpointRequest} | `manage-endpoints` and `manage-secrets` | 201 {@link CreatedEndpointAnswer} |
 * | `PATCH api/endpoints/:id` {@link EndpointPatch} | `manage-endpoints` | {@link EndpointRow} |
 * | `DELETE api/endpoints/:id` | `manage-endpoints` | 204 |
 * | `POST api/endpoints/:id/enable` | `manage-endpoints` | {@link EndpointRow} |
 * | `POST api/endpoints/:id/disable` | `manage-endpoints` | {@link EndpointRow} |
 * | `POST api/endpoints/:id/pause` | `manage-endpoints` | {@link EndpointRow} |
 * | `POST api/endpoints/:id/resume` | `manage-endpoints` | {@link EndpointRow} |
 * | `POST api/endpoints/:id/test` {@link TestEventRequest} | `manage-endpoints` | {@link TestEventAnswer} |
 * | `GET api/endpoints/:id/recovery` | `view` | {@link RecoveryAnswer} |
 * | `POST api/endpoints/:id/recovery` {@link RecoveryRequest} | `redeliver` | {@link RecoveryPreview}, or {@link RecoveryAnswer} |
 * | `DELETE api/endpoints/:id/recovery` | `redeliver` | {@link RecoveryAnswer}: cancels it |
 * | `GET api/endpoints/:id/blocked-keys` | `view` | {@link BlockedKeyList} |
 * | `POST api/endpoints/:id/rotate-key` {@link RotateKeyRequest} | `manage-secrets` | {@link RotatedKeyAnswer} |
 * | `GET api/formats` {@link EndpointQuery} | `view` | {@link FormatList} |
 * | `GET api/event-types` | `view` | {@link EventTypeList} |
 * | `GET api/inbox` {@link InboxQuery} | `view`, console only | {@link InboxList} |
 * | `GET api/inbox/:id` | `view`, console only | {@link InboxDetails} |
 * | `GET api/inbox/:id/payload` | `view-payload`, console only | {@link ConsolePayload} |
 * | `POST api/inbox/:id/retry` | `redeliver`, console only | {@link InboxDetails} |
 * | `GET api/dead-letters` {@link DeadLetterQuery} | `view`, console only | {@link DeadLetterList} |
 * | `GET api/dead-letters/:id/runs` | `view`, console only | {@link RunList}; `:id` may be an inbox entry's too |
 * | `POST api/dead-letters/retry` {@link RetryRequest} | `redeliver`, console only | {@link RetryAnswer} |
 * | `GET api/activity` {@link ActivityQuery} | `view` | {@link ActivityList} |
 * | `GET api/events` | `view` | Server-sent events: {@link ConsoleChange} |
 * | `GET api/changes` {@link ChangesQuery} | `view` | {@link ChangesAnswer} |
 *
 * `:id` is percent-encoded by the page. A missing capability is rejected with 403 `missing_capability`.
 */

/** What a session may do. */
export type ConsoleCapability =
  'view' | 'view-payload' | 'redeliver' | 'manage-endpoints' | 'manage-secrets';

/** Body of an error. */
export interface ConsoleProblem {
  readonly type: 'about:blank';
  readonly title: string;
  readonly status: number;
  /** A sentence for the user. */
  readonly detail: string;
  readonly code: ConsoleErrorCode;
  /** With `invalid_option`: one message for each wrong member. */
  readonly errors?: readonly { readonly path: string; readonly message: string }[];
}

/** Codes of errors. Other codes of the library, such as `store_unavailable` (503), may occur too. */
export type ConsoleErrorCode =
  /** 400: a query parameter or the body is wrong. */
  | 'invalid_option'
  /** 400: the event is not defined, or has no example to send. */
  | 'unknown_event'
  /** 401, portal: exchange a link first, or ask for a new one. */
  | 'session_required'
  /** 401, portal: the token of the link is wrong, or has expired. */
  | 'link_invalid'
  /** 403 */
  | 'missing_capability'
  /** 403 */
  | 'cross_site_request'
  /** 403: a console without a guard answers loopback host names only. */
  | 'host_not_allowed'
  /** 403, portal */
  | 'wrong_tenant'
  /** 404, each also for something that belongs to another tenant. */
  | 'unknown_delivery'
  | 'unknown_endpoint'
  | 'unknown_entry'
  /** 410: the queue has dropped the payload before the delivery. */
  | 'payload_dropped'
  /** 404: the application has no such part; see {@link ConsoleSession.features}. */
  | 'unavailable'
  /** 409 */
  | 'endpoint_exists'
  | 'endpoint_changed'
  | 'limit_reached'
  /** 409: for example, a configured endpoint is changed in the configuration only. */
  | 'unsupported_option'
  | 'not_retryable'
  /** 409: one recovery of an endpoint runs at a time. */
  | 'recovery_running'
  /** 422: the egress guard refuses the URL of an endpoint. */
  | 'destination_blocked'
  /** 429, with `Retry-After`: test events and redeliveries a minute, or reads at the same time. */
  | 'too_many_requests'
  /** 500 */
  | 'internal_error'
  /** 503 */
  | 'store_unavailable'
  | (string & {});

/** Answer of `GET api/session`. */
export interface ConsoleSession {
  readonly kind: 'console' | 'portal';
  readonly capabilities: readonly ConsoleCapability[];
  /** The only tenant of a portal session. */
  readonly tenant?: string;
  /** Who acts, as the option `actor` names the user. */
  readonly actor?: string;
  /** Portal: when the session ends. */
  readonly expiresAt?: string;
  readonly brand: ConsoleBrand;
  /** Language of the page, such as `de`: a BCP 47 tag. */
  readonly language: string;
  /** Portal: the tenant's name for people; absent if the link has none. */
  readonly displayName?: string;
  /** Portal: where the partner came from, at an origin that the application allows; absent if the link has none. */
  readonly returnUrl?: string;
  /** Parts that exist; hide the others. */
  readonly features: {
    /** The module publishes: overview and endpoints. */
    readonly endpoints: boolean;
    /** The module publishes: deliveries and attempts. */
    readonly deliveries: boolean;
    /** The application has defined its events. */
    readonly eventTypes: boolean;
    readonly inbox: boolean;
    /** A receiver acknowledges before it handles. */
    readonly deadLetters: boolean;
  };
  /** The server's time, to show relative times. */
  readonly now: string;
}

/** How console and portal present themselves. */
export interface ConsoleBrand {
  /** Default `Webhooks`. */
  readonly name: string;
  /** A hexadecimal colour, such as `#0a66c2`. */
  readonly color?: string;
  /** A `data:image/…` URL, or an `https:` or relative URL. */
  readonly logo?: string;
}

/** Body of `POST api/session`: the token of the link's fragment. */
export interface SessionExchange {
  readonly token: string;
}

// Overview

/** Query of `GET api/overview`. */
export interface OverviewQuery {
  readonly tenant?: string;
}

/** Counts of deliveries; `lag` is by how many milliseconds the oldest due delivery is overdue. */
export interface ConsoleCounts {
  readonly pending: number;
  readonly delivered: number;
  readonly dead: number;
  readonly lag: number;
}

/** Answer of `GET api/overview`. */
export interface ConsoleOverview {
  /** Absent without a publisher. `pending` is the depth of the queue. */
  readonly deliveries?: ConsoleCounts;
  /** Absent without an inbox, and in the portal. */
  readonly inbox?: InboxCounts;
  /** Number of dead letters; absent without a queued receiver, and in the portal. */
  readonly deadLetters?: number;
  /** Endpoints with missed or waiting deliveries that are not healthy, worst first, at most 20. Absent without a publisher. */
  readonly attention?: readonly EndpointRow[];
}

/** Query of `GET api/stats`. With steps of 5 minutes or more, range and steps are widened to multiples of 5 minutes. */
export interface StatsQuery {
  /** Default: 24 hours before `to`. */
  readonly from?: string;
  /** Exclusive; default: now. */
  readonly to?: string;
  /** Milliseconds, at least 1000; the range has at most 200 steps. Default: a 48th of the range. */
  readonly step?: string;
  /** Id of an endpoint. */
  readonly endpoint?: string;
  readonly tenant?: string;
}

/** Deliveries by their state now. */
export interface StatsCounts {
  readonly delivered: number;
  /** Given up. */
  readonly failed: number;
  readonly pending: number;
  /** Median of the time from the publish to the delivery, over at most 100 delivered deliveries of each step; absent without one. */
  readonly p50Ms?: number;
  /** 95th percentile of the same. */
  readonly p95Ms?: number;
}

/** The deliveries that were recorded from `at` to the next step. */
export interface StatsBucket extends StatsCounts {
  readonly at: string;
}

/** Answer of `GET api/stats`. */
export interface ConsoleStats {
  /** One for each step, oldest first. */
  readonly buckets: readonly StatsBucket[];
  /** Of the whole range. */
  readonly total: StatsCounts;
  /** By endpoint, those with most failures first, at most 100. Each list has a number for each bucket. */
  readonly endpoints: readonly {
    /** Absent for deliveries to URLs. */
    readonly endpoint?: string;
    readonly tenant?: string;
    readonly delivered: readonly number[];
    readonly failed: readonly number[];
    readonly pending: readonly number[];
  }[];
}

/** Counts of the stored entries, and of entries that were not stored because too many arrived. */
export interface InboxCounts {
  readonly accepted: number;
  readonly refused: number;
  readonly dropped: number;
}

// Deliveries

/** Query of `GET api/deliveries`. Members that are left out match everything. */
export interface DeliveryQuery {
  readonly status?: DeliveryStatus;
  /** Id of an endpoint. */
  readonly endpoint?: string;
  /** Name of an event, exactly. */
  readonly event?: string;
  readonly eventId?: string;
  readonly tenant?: string;
  /** Recorded at this time or later. */
  readonly since?: string;
  /** Recorded before this time. */
  readonly until?: string;
  readonly after?: string;
  readonly limit?: string;
}

/** `dead`: given up, until it is redelivered. */
export type DeliveryStatus = 'pending' | 'delivered' | 'dead';

/** A delivery in a list. */
export interface DeliveryRow {
  readonly id: string;
  readonly eventId: string;
  readonly event: string;
  /** Absent for a delivery to a URL. */
  readonly endpointId?: string;
  /** The origin of such a URL. */
  readonly origin?: string;
  readonly tenant?: string;
  readonly status: DeliveryStatus;
  readonly attemptsMade: number;
  /** The key in whose order it is sent, and its number among the deliveries of its endpoint and key. */
  readonly orderingKey?: string;
  readonly sequence?: number;
  /** `waiting`: for an earlier one of its key; `blocking`: dead, and later ones of its key wait until it is sent again or skipped. */
  readonly keyState?: 'waiting' | 'blocking';
  /** It is due, and may be waiting for the limits of its endpoint. */
  readonly limited?: true;
  /** Its payload was dropped: it can neither be shown nor sent again. */
  readonly payloadDropped?: true;
  /** 1; higher for a delivered delivery that was sent again. */
  readonly round: number;
  readonly createdAt: string;
  readonly updatedAt: string;
  /** With `pending`. */
  readonly nextAttemptAt?: string;
  /** Such as `timeout`, `dns`, `http_503`, `endpoint_disabled`, `endpoint_paused`. */
  readonly failureReason?: string;
}

/** Answer of `GET api/deliveries`, newest first. */
export interface DeliveryList {
  readonly items: readonly DeliveryRow[];
  readonly next?: string;
  /** Time from `createdAt` to the delivery of the delivered items of this page; absent if there is none. */
  readonly timeToDelivery?: { readonly count: number; readonly p50: number; readonly p95: number };
}

/** Answer of `GET api/deliveries/:id`. */
export interface DeliveryDetails extends DeliveryRow {
  /** Oldest first. */
  readonly attempts: readonly DeliveryAttempt[];
  /** Trace of the publish, 32 hexadecimal digits; absent without tracing. */
  readonly traceId?: string;
}

/** One attempt. */
export interface DeliveryAttempt {
  readonly attempt: number;
  readonly at: string;
  readonly method: 'HEAD' | 'POST';
  /** Absent if no answer arrived. */
  readonly statusCode?: number;
  readonly durationMs: number;
  /** Absent if the attempt was acknowledged. */
  readonly failureReason?: string;
  /** The first 1024 bytes of the answer's body, redacted; only with the capability `view-payload`. Hostile. */
  readonly answer?: string;
}

/** A payload, redacted, and cut after 64 KiB. */
export interface ConsolePayload {
  readonly contentType: string;
  /** Bytes of the whole payload, before it was cut. */
  readonly size: number;
  readonly truncated: boolean;
  /** Whether the application's `redact` changed it. */
  readonly redacted: boolean;
  /** Text types; JSON is not formatted. */
  readonly text?: string;
  /** All other types. */
  readonly base64?: string;
}

/** Body of `POST api/deliveries/redeliver`: either `ids` or `filter`. */
export interface RedeliverRequest {
  /** At most 100. A pending delivery of this list is attempted now. */
  readonly ids?: readonly string[];
  /** Matches dead deliveries, unless its `status` is `delivered`. At least one member. */
  readonly filter?: Omit<DeliveryQuery, 'after' | 'limit'>;
  /** Required. `true` returns what would be sent again; show it before you call again with `false`. */
  readonly dryRun: boolean;
  /** With `filter`: at most so many, 1 to 1000; default 1000. */
  readonly limit?: number;
}

/** Answer of `POST api/deliveries/redeliver`. */
export interface RedeliverAnswer {
  readonly dryRun: boolean;
  readonly items: readonly {
    readonly id: string;
    /** `false` in a dry run; there, an item without `reason` would be sent again. */
    readonly redelivered: boolean;
    /** The id of the new delivery, if it is sent as another one. */
    readonly as?: string;
    /** Why not: `pending`, `delivered`, `superseded`, `payload_dropped`, or `unknown_delivery`. */
    readonly reason?: string;
  }[];
  /** Whether the filter matches more than `limit`. */
  readonly more: boolean;
}

// Endpoints

/** Query of `GET api/endpoints`. */
export interface EndpointQuery {
  readonly tenant?: string;
  readonly after?: string;
  readonly limit?: string;
}

/** An endpoint, without secrets. */
export interface EndpointRow {
  readonly id: string;
  readonly tenant?: string;
  /** Without its query, which may hold a credential, unless the session may `manage-endpoints`. */
  readonly url: string;
  readonly events: readonly string[];
  readonly description?: string;
  /** `options`: defined in the configuration. It can be enabled, disabled, paused and tested only, in this process. */
  readonly source: 'options' | 'store';
  /** Absent while the endpoint is enabled. */
  readonly disabled?: { readonly at: string; readonly reason: 'requested' | 'gone' | 'failing' };
  /** Since when it is paused; its deliveries wait until it is resumed. */
  readonly pausedAt?: string;
  /** Oldest first. Empty for configured endpoints, and if the publisher signs. */
  readonly keys: readonly EndpointKeyRow[];
  /** What differs from the publisher's settings. Of headers, the names only. */
  readonly settings: EndpointSettingsRow;
  /** The kinds of its credentials; absent if it has none. */
  readonly credentials?: readonly ('certificate' | 'headers' | 'oauth2')[];
  /** Absent for configured endpoints. */
  readonly createdAt?: string;
  readonly updatedAt?: string;
  readonly health: EndpointHealth;
}

/** A key of an endpoint. */
export interface EndpointKeyRow {
  readonly kid: string;
  readonly signsFrom: string;
  /** `signing`: of new requests. `next`: it signs from `signsFrom` on. `retired`: a later one signs. */
  readonly state: 'signing' | 'next' | 'retired';
}

/** Settings of an endpoint, as the library has them: `filter`, `retry`, `timeout`, `onDead` and others. Durations are milliseconds. */
export type EndpointSettingsRow = Readonly<Record<string, unknown>>;

/** Answer of `GET api/formats`: how requests to endpoints are signed, and how the last one was that this process saw acknowledged. */
export interface FormatList {
  readonly items: readonly {
    readonly id: string;
    readonly tenant?: string;
    readonly profile: unknown;
    readonly acknowledged?: {
      readonly profile: unknown;
      readonly since: string;
      readonly at: string;
    };
  }[];
  readonly next?: string;
}

/** Answer of `GET api/endpoints/:id/blocked-keys`: keys whose later deliveries wait for a missed one. At most 500 missed deliveries are searched. */
export interface BlockedKeyList {
  readonly items: readonly {
    readonly orderingKey: string;
    /** The delivery to redeliver or to skip. */
    readonly deliveryId: string;
    readonly event: string;
    readonly since: string;
    readonly failureReason?: string;
  }[];
}

/** Answer of `POST api/deliveries/:id/skip`. */
export interface SkipAnswer {
  /** Whether later deliveries of its key waited for it, and continue now. */
  readonly skipped: boolean;
}

/** How an endpoint is doing. */
export interface EndpointHealth {
  /**
   * From stored deliveries, so that it is the same in every process. `failing`: the last attempt failed, or most of the last
   * 20 deliveries. `idle`: none was attempted.
   */
  readonly state: 'healthy' | 'failing' | 'paused' | 'disabled' | 'idle';
  /** Since when it is failing, paused or disabled. */
  readonly since?: string;
  /** Why: the last failure, such as `http_503`, or why it is disabled. */
  readonly reason?: string;
  /** Share of the deliveries of the last 24 hours that were delivered, of those that were delivered or given up: 0 to 1. */
  readonly successRate24h?: number;
  /** As the process that answers has learnt it since it started. */
  readonly circuit: {
    readonly state: 'closed' | 'open' | 'trial';
    readonly failuresInRow: number;
    readonly failingSince?: string;
    /** Deliveries wait until then. */
    readonly pausedUntil?: string;
  };
  /** Absent without a publisher. */
  readonly counts?: ConsoleCounts;
  /** When the newest delivered delivery was delivered; absent if none is stored. */
  readonly lastSuccessAt?: string;
}

/** Answer of `GET api/endpoints`, ordered by id. */
export interface EndpointList {
  readonly items: readonly EndpointRow[];
  readonly next?: string;
}

/** Body of `POST api/endpoints`. */
export interface NewEndpointRequest {
  readonly id?: string;
  readonly url: string;
  /** Names or patterns; default `['**']`. */
  readonly events?: readonly string[];
  /** Console only; the portal creates endpoints of its tenant. */
  readonly tenant?: string;
  readonly description?: string;
  /** Which of these events it gets, by their content. */
  readonly filter?: object;
  /** Whether a missed delivery blocks the later ones of its key. */
  readonly onDead?: 'skip' | 'block';
  /** Console only: attempts, schedule and jitter. */
  readonly retry?: object;
}

/** Answer of `POST api/endpoints`. The secret cannot be read again: show it once, and do not store it. */
export interface CreatedEndpointAnswer {
  readonly endpoint: EndpointRow;
  readonly secret: string;
}

/** Body of `PATCH api/endpoints/:id`. Members that are left out stay. */
export interface EndpointPatch {
  readonly url?: string;
  readonly events?: readonly string[];
  /** `null` removes it. */
  readonly description?: string | null;
  /** `null` removes it. */
  readonly filter?: object | null;
  /** `null` removes it. */
  readonly onDead?: 'skip' | 'block' | null;
  /** Console only; `null` removes it. */
  readonly retry?: object | null;
}

/** Body of `POST api/endpoints/:id/test`. */
export interface TestEventRequest {
  /** A defined event, whose first example is sent as a real event; default: `webhook.test`. */
  readonly event?: string;
}

/** Answer of `GET api/event-types`: the events that the application has defined. */
export interface EventTypeList {
  readonly items: readonly {
    readonly event: string;
    readonly description?: string;
    readonly version?: string;
    /** `true`, or a sentence that says what to use instead. */
    readonly deprecated?: boolean | string;
    /** A JSON Schema, draft 2020-12; absent if there is none, or if it cannot be converted. */
    readonly schema?: object;
    /** The first example. */
    readonly example?: unknown;
  }[];
}

/** Answer of `POST api/endpoints/:id/test`. */
export interface TestEventAnswer {
  readonly delivered: boolean;
  readonly statusCode?: number;
  readonly durationMs: number;
  readonly failureReason?: string;
}

/** Body of `POST api/endpoints/:id/rotate-key`. */
export interface RotateKeyRequest {
  /** Milliseconds, or a duration such as `'24h'` (default). `0` drops the old key now, for a leaked secret. */
  readonly overlap?: number | string;
}

/** Answer of `POST api/endpoints/:id/rotate-key`. The secret cannot be read again. */
export interface RotatedKeyAnswer {
  readonly kid: string;
  readonly signsFrom: string;
  readonly secret: string;
}

// Inbox

/** Query of `GET api/inbox`. */
export interface InboxQuery {
  readonly outcome?: InboxOutcome;
  /** Groups of outcomes: refused requests, or all others. */
  readonly kind?: 'accepted' | 'refused';
  readonly receiver?: string;
  /** Answer code, such as `bad_signature`. */
  readonly code?: string;
  readonly event?: string;
  readonly eventId?: string;
  readonly issuer?: string;
  readonly since?: string;
  readonly until?: string;
  readonly after?: string;
  readonly limit?: string;
}

/** What happened to a received request. */
export type InboxOutcome =
  /** Its handlers succeeded. */
  | 'handled'
  /** Acknowledged; its handlers have not run yet, or will run again. */
  | 'queued'
  /** A copy of an event that was handled before. */
  | 'duplicate'
  /** Acknowledged, but no handler matches it. */
  | 'unhandled'
  /** A handler failed; the sender repeats it. */
  | 'failed'
  /** Acknowledged, and its handlers failed in every run: a dead letter. */
  | 'dead'
  /** Refused: see `code`. */
  | 'refused';

/** A received request. */
export interface InboxRow {
  readonly id: string;
  readonly at: string;
  readonly outcome: InboxOutcome;
  /** HTTP status of the answer. */
  readonly status: number;
  /** Code of the answer, also why it was refused; absent on success. */
  readonly code?: string;
  /** Absent if none was chosen yet. */
  readonly receiver?: string;
  readonly method: string;
  /** Without the query. */
  readonly path: string;
  /** Bytes of the body as announced; absent if the request did not say. */
  readonly size?: number;
  /** Whether the signature was valid. If not, event, eventId, issuer and kid are unauthenticated. */
  readonly authenticated: boolean;
  readonly event?: string;
  readonly eventId?: string;
  readonly issuer?: string;
  readonly kid?: string;
  /** Runs of the handlers from the queue; absent otherwise. */
  readonly runs?: number;
}

/** Answer of `GET api/inbox`, newest first. */
export interface InboxList {
  readonly items: readonly InboxRow[];
  readonly next?: string;
}

/** Answer of `GET api/inbox/:id`. */
export interface InboxDetails extends InboxRow {
  /** Why, in words; the detail that the sender got. */
  readonly detail?: string;
  /** Kept only with the option `headers`; values of credentials are never kept. */
  readonly headers?: readonly (readonly [name: string, value: string])[];
  /** Whether `GET …/payload` has one. */
  readonly hasPayload: boolean;
  /** Whether `POST …/retry` applies: the entry is a dead letter, or waits for its next run. */
  readonly retryable: boolean;
  /** Why the request was refused, step by step. Absent if it was accepted, or was not explained at the time. */
  readonly explanation?: ConsoleExplanation;
}

/** The steps of `WebhookVerifier.explain()`. */
export interface ConsoleExplanation {
  readonly verdict: 'accepted' | 'refused';
  readonly code?: string;
  readonly status?: number;
  readonly steps: readonly {
    readonly step: string;
    readonly outcome: 'passed' | 'failed' | 'skipped';
    readonly code?: string;
    readonly detail: string;
  }[];
  /** Observations that help to find the cause. */
  readonly hints: readonly { readonly code: string; readonly detail: string }[];
}

/** Query of `GET api/dead-letters`. */
export interface DeadLetterQuery {
  readonly receiver?: string;
  readonly after?: string;
  readonly limit?: string;
}

/** An event that was acknowledged and whose handlers failed in every run. */
export interface DeadLetterRow {
  readonly id: string;
  readonly receiver: string;
  readonly event: string;
  readonly eventId: string;
  readonly runs: number;
  readonly failureReason: string;
  readonly receivedAt: string;
  readonly diedAt: string;
}

/** Answer of `GET api/dead-letters/:id/runs`, oldest first. */
export interface RunList {
  readonly items: readonly {
    readonly run: number;
    readonly at: string;
    readonly durationMs: number;
    /** Absent if the run succeeded. */
    readonly failureReason?: string;
    /** What the handlers threw: names and messages. May quote the payload, so it needs `view-payload` too. */
    readonly error?: string;
  }[];
}

/** Answer of `GET api/dead-letters`, newest first. */
export interface DeadLetterList {
  readonly items: readonly DeadLetterRow[];
  readonly next?: string;
}

/** Body of `POST api/dead-letters/retry`: ids of dead letters, at most 100. */
export interface RetryRequest {
  readonly ids: readonly string[];
}

/** Answer of `POST api/dead-letters/retry`: the ids that were dead and are now pending. */
export interface RetryAnswer {
  readonly retried: readonly string[];
}

// Recovery

/** Body of `POST api/endpoints/:id/recovery`. */
export interface RecoveryRequest {
  /** Deliveries that were recorded at this time or later; default: all. */
  readonly since?: string;
  /** Required. `true` counts what would be sent again; `false` starts. */
  readonly dryRun: boolean;
}

/** Answer of a dry run. */
export interface RecoveryPreview {
  readonly dryRun: true;
  /** Missed deliveries. */
  readonly count: number;
}

/** Answer of the calls about a recovery. */
export interface RecoveryAnswer {
  /** The last recovery of the endpoint; absent if there was none. */
  readonly recovery?: RecoveryRow;
}

/** Missed deliveries of an endpoint that are sent again in the background, also while no page is open. */
export interface RecoveryRow {
  readonly endpoint: string;
  readonly tenant?: string;
  /** Another process continues a running one whose process has ended. */
  readonly status: 'running' | 'done' | 'cancelled';
  /** Absent for all missed deliveries. */
  readonly since?: string;
  /** When it began; later deliveries are not sent again. */
  readonly startedAt: string;
  readonly updatedAt: string;
  /** Missed deliveries when it began. */
  readonly total: number;
  /** Deliveries that were sent again. */
  readonly sent: number;
  /** Deliveries that could not, because their payload is gone. */
  readonly skipped: number;
  /** Who began it; absent in the portal if an operator did. */
  readonly actor?: string;
}

// Activity and live updates

/** Query of `GET api/activity`. Members that are left out match everything. */
export interface ActivityQuery {
  readonly tenant?: string;
  readonly action?: ConsoleAction;
  /** Id of an endpoint, or of the delivery or entry that an action was about. */
  readonly target?: string;
  readonly after?: string;
  readonly limit?: string;
}

/** An action that changed something or read a payload, or something that happened to an endpoint. */
export interface ActivityRow {
  readonly id: string;
  readonly at: string;
  readonly action: ConsoleAction;
  /** A user of the console, a user of the portal, or the library itself. */
  readonly by: 'operator' | 'partner' | 'system';
  /** Who: the answer of the option `actor`, or `portal:TENANT`. In the portal, operators have no name. */
  readonly actor?: string;
  readonly tenant?: string;
  /** Id of the delivery, endpoint or entry; absent for several. */
  readonly target?: string;
  /** Number of affected things, for an action on several. */
  readonly count?: number;
  /** `running`: it lasts, such as a recovery, or an endpoint that fails. */
  readonly outcome: 'done' | 'failed' | 'running' | 'cancelled';
  /** Code of the error, with `failed`. */
  readonly code?: string;
  /** With `endpoint.recover`. */
  readonly recovery?: RecoveryRow;
  /** With `endpoint.failing` and `queue.lagging`: why. */
  readonly reason?: string;
  /** With the same: when it was over; absent while it lasts. */
  readonly endedAt?: string;
}

/** Names of actions. */
export type ConsoleAction =
  | 'payload.view'
  | 'delivery.redeliver'
  | 'delivery.skip'
  | 'inbox.retry'
  | 'endpoint.create'
  | 'endpoint.update'
  | 'endpoint.delete'
  | 'endpoint.enable'
  | 'endpoint.disable'
  | 'endpoint.pause'
  | 'endpoint.resume'
  | 'endpoint.test'
  | 'endpoint.rotate-key'
  | 'endpoint.recover'
  | 'endpoint.failing'
  | 'queue.lagging'
  | 'session.start';

/** Answer of `GET api/activity`, newest first. */
export interface ActivityList {
  readonly items: readonly ActivityRow[];
  readonly next?: string;
}

/**
 * Something that changed in this process: the `data` of a server-sent event, whose `id` is the `sequence` and whose `event` is
 * `change`. Events of the type `ping` arrive every 25 s and keep the connection open. Other processes do not report here, so also
 * reload the visible list every 30 s.
 */
export interface ConsoleChange {
  readonly sequence: number;
  readonly topic: 'deliveries' | 'endpoints' | 'inbox' | 'activity';
  /** Id of the delivery or endpoint; absent if several changed. */
  readonly id?: string;
  readonly at: string;
}

/** Query of `GET api/changes`, the fallback if server-sent events are blocked: poll it every 5 s. */
export interface ChangesQuery {
  /** `sequence` of the last answer; left out, the answer has no changes. */
  readonly after?: string;
}

/** Answer of `GET api/changes`. */
export interface ChangesAnswer {
  readonly sequence: number;
  /** The changes after it, at most 200. */
  readonly changes: readonly ConsoleChange[];
  /** Whether there were more than are kept: reload everything. */
  readonly gap: boolean;
}
