import type { WebhookDeliveryFilter } from '../deliveries/delivery-query.js';
import type { WebhookDeliveryView } from '../deliveries/delivery-view.js';
import type { RedeliveredDelivery } from '../deliveries/redelivery.js';
import type {
  EndpointChanges,
  EndpointFormat,
  EndpointTestResult,
  NewEndpoint,
} from '../endpoints/webhook-endpoint.interface.js';
import type { WebhookInboxFilter } from '../receiver/inbox/webhook.inbox.js';
import type { ANSWERS } from './console-problem.js';
import type { activityRow, inboxRow, recoveryRow } from './console-views.js';
import type { ConsoleEndpoints } from './console.endpoints.js';
import type { ConsoleInbox } from './console.inbox.js';
import type { ConsoleService } from './console.service.js';

/**
 * The JSON API of the delivery console and of the partner portal.
 *
 * Types only, so that the page compiles against them: most are those of what the server's calls return, written as JSON. All URLs are
 * relative to the page, which is always served with a slash at the end: `GET ./api/session`. This keeps the page independent of the
 * global prefix, the version and the sub-path of a proxy.
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
 * | `GET api/endpoints/:id/format` | `view` | {@link EndpointFormatRow} |
 * | `POST api/tenants/:id/link` {@link LinkRequest} | `share` and what the link grants, console only | {@link LinkAnswer} |
 * | `POST api/tenants/:id/erase` {@link EraseRequest} | `erase`, console only | {@link EraseAnswer} |
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
 *
 * `:id` is percent-encoded by the page. A missing capability is rejected with 403 `missing_capability`.
 */

/** A value as it arrives, written as JSON: a `Date` is a time in ISO 8601, and a member that is `undefined` is absent. */
export type Jsonified<T> = T extends Date
  ? string
  : T extends object
    ? { readonly [Name in keyof T]: Jsonified<T[Name]> }
    : T;

type AnswerOf<Call extends (...parameters: never[]) => unknown> = Jsonified<
  Awaited<ReturnType<Call>>
>;

interface PageQuery {
  readonly after?: string;
  readonly limit?: string;
}

/** What a session of the portal may do. */
export type PortalCapability =
  'view' | 'view-payload' | 'redeliver' | 'manage-endpoints' | 'manage-secrets';

/** What a session may do. */
export type ConsoleCapability = PortalCapability | 'share' | 'erase';

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

/** Codes of errors. Other codes of the library may occur too. */
export type ConsoleErrorCode = keyof typeof ANSWERS | 'internal_error' | (string & {});

/** Answer of `GET api/session`. */
export type ConsoleSession = AnswerOf<ConsoleService['session']>;

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

/** Answer of `GET api/overview`. */
export type ConsoleOverview = AnswerOf<ConsoleService['overview']>;

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
  /** Median of the time from the publish to the delivery, over at most 100 delivered deliveries of each step and 1,200 of all; absent without one. */
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

// Deliveries

/** Query of `GET api/deliveries`. Members that are left out match everything. */
export type DeliveryQuery = Jsonified<Omit<WebhookDeliveryFilter, 'endpointId'>> &
  PageQuery & {
    /** Id of an endpoint. */
    readonly endpoint?: string;
  };

/** `dead`: given up, until it is redelivered. */
export type DeliveryStatus = WebhookDeliveryView['status'];

/** A delivery in a list. */
export type DeliveryRow = Jsonified<WebhookDeliveryView>;

/** Answer of `GET api/deliveries`, newest first. */
export type DeliveryList = AnswerOf<ConsoleService['deliveryList']>;

/** Answer of `GET api/deliveries/:id`. */
export type DeliveryDetails = AnswerOf<ConsoleService['delivery']>;

/** One attempt. */
export type DeliveryAttempt = DeliveryDetails['attempts'][number];

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
  /**
   * With `ids`, one for each in the same order: the status that the user saw. A delivery that was not `delivered` then, and is now,
   * is not sent again (`reason: 'delivered'`). Without the list, a delivered one is sent as a new delivery.
   */
  readonly statuses?: readonly DeliveryStatus[];
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
  /** `redelivered` is `false` in a dry run; there, an item without `reason` would be sent again. */
  readonly items: readonly (Omit<RedeliveredDelivery, 'reason'> & {
    /** Why not. */
    readonly reason?: RedeliveredDelivery['reason'] | 'unknown_delivery';
  })[];
  /**
   * Whether the filter matches more than `limit`. With `ids`: whether an error, such as `limit_reached`, came after some were sent.
   * `items` lacks the rest; send those ids again.
   */
  readonly more: boolean;
}

/** Answer of `POST api/deliveries/:id/skip`. */
export interface SkipAnswer {
  /** Whether later deliveries of its key waited for it, and continue now. */
  readonly skipped: boolean;
}

// Endpoints

/** Query of `GET api/endpoints`. */
export interface EndpointQuery extends PageQuery {
  readonly tenant?: string;
}

/** An endpoint, without secrets. */
export type EndpointRow = EndpointList['items'][number];

/** How an endpoint is doing. */
export type EndpointHealth = EndpointRow['health'];

/** Answer of `GET api/endpoints/:id/format`: how its requests are signed, and how the last one was that this process saw acknowledged. */
export type EndpointFormatRow = Jsonified<EndpointFormat>;

/** Answer of `GET api/endpoints/:id/blocked-keys`: keys whose later deliveries wait for a missed one, at most 500. */
export type BlockedKeyList = AnswerOf<ConsoleEndpoints['blockedKeys']>;

/** Answer of `GET api/endpoints`, ordered by id. */
export type EndpointList = AnswerOf<ConsoleEndpoints['endpointList']>;

/** Body of `POST api/endpoints`. Only the console has `id`, `tenant` and `retry`. */
export type NewEndpointRequest = Pick<
  NewEndpoint,
  | 'id'
  | 'tenant'
  | 'url'
  | 'events'
  | 'description'
  | 'filter'
  | 'onDead'
  | 'retry'
  | 'concurrency'
  | 'rateLimit'
  | 'credentials'
>;

/**
 * Answer of `POST api/endpoints`. The secret cannot be read again: show it once, and do not store it. After this and other changes,
 * the endpoint has no `health` if it cannot be read.
 */
export type CreatedEndpointAnswer = AnswerOf<ConsoleEndpoints['createEndpoint']>;

/**
 * Body of `PATCH api/endpoints/:id`. Members that are left out stay; `null` removes one. Only the console has `retry`; `credentials`
 * replace all that are set, and need `manage-secrets` too.
 */
export type EndpointPatch = Pick<
  EndpointChanges,
  Exclude<keyof NewEndpointRequest, 'id' | 'tenant'>
>;

/** Body of `POST api/endpoints/:id/test`. */
export interface TestEventRequest {
  /** A defined event, whose first example is sent as a real event; default: `webhook.test`. */
  readonly event?: string;
}

/** Answer of `GET api/event-types`: the events that the application has defined. */
export type EventTypeList = AnswerOf<ConsoleEndpoints['eventTypes']>;

/** Answer of `POST api/endpoints/:id/test`. */
export type TestEventAnswer = EndpointTestResult;

/** Body of `POST api/endpoints/:id/rotate-key`. */
export interface RotateKeyRequest {
  /** Milliseconds, or a duration such as `'24h'` (default). `0` drops the old key now, for a leaked secret. */
  readonly overlap?: number | string;
}

/** Answer of `POST api/endpoints/:id/rotate-key`. The secret cannot be read again. */
export type RotatedKeyAnswer = AnswerOf<ConsoleEndpoints['rotateKey']>;

// Inbox

/** Query of `GET api/inbox`. */
export type InboxQuery = Jsonified<WebhookInboxFilter> & PageQuery;

/** A received request. */
export type InboxRow = Jsonified<ReturnType<typeof inboxRow>>;

/** What happened to a received request. */
export type InboxOutcome = InboxRow['outcome'];

/** Answer of `GET api/inbox`, newest first. */
export type InboxList = AnswerOf<ConsoleInbox['inboxList']>;

/** Answer of `GET api/inbox/:id`. */
export type InboxDetails = AnswerOf<ConsoleInbox['inboxEntry']>;

/** The steps of `WebhookVerifier.explain()`. */
export type ConsoleExplanation = NonNullable<InboxDetails['explanation']>;

/** Query of `GET api/dead-letters`. */
export interface DeadLetterQuery extends PageQuery {
  readonly receiver?: string;
}

/** Answer of `GET api/dead-letters/:id/runs`, oldest first. */
export type RunList = AnswerOf<ConsoleInbox['runs']>;

/** Answer of `GET api/dead-letters`, newest first. */
export type DeadLetterList = AnswerOf<ConsoleInbox['deadLetters']>;

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
export type RecoveryRow = ReturnType<typeof recoveryRow>;

// Tenants

/** Body of `POST api/tenants/:id/link`. */
export interface LinkRequest {
  /** What the partner may do, of what the operator may do; default `['view']`. */
  readonly capabilities?: readonly PortalCapability[];
  /** How long the link can be opened, such as `'1h'`; default `'15m'`, at most `'24h'`. */
  readonly expiresIn?: number | string;
}

/** Answer of `POST api/tenants/:id/link`: a link to the portal, which is a credential. */
export interface LinkAnswer {
  readonly url: string;
}

/** Body of `POST api/tenants/:id/erase`. */
export interface EraseRequest {
  /** Required. `true` counts what would be deleted. */
  readonly dryRun: boolean;
}

/** Answer of `POST api/tenants/:id/erase`: the endpoints of the tenant, and its deliveries in any state with payloads and attempts. */
export interface EraseAnswer {
  readonly dryRun: boolean;
  readonly endpoints: number;
  readonly deliveries: number;
  /** Whether nothing is left. If not, deliveries are being attempted: call it again. */
  readonly isComplete: boolean;
}

// Activity and live updates

/** Query of `GET api/activity`. Members that are left out match everything. */
export interface ActivityQuery extends PageQuery {
  readonly tenant?: string;
  readonly action?: ConsoleAction;
  /** Id of an endpoint, or of the delivery or entry that an action was about. */
  readonly target?: string;
}

/** An action that changed something or read a payload, or something that happened to an endpoint. */
export type ActivityRow = ReturnType<typeof activityRow>;

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
  | 'session.start'
  | 'tenant.erase'
  | 'tenant.link';

/** Answer of `GET api/activity`, newest first. */
export type ActivityList = AnswerOf<ConsoleService['activityList']>;

/**
 * Something that changed in this process: the `data` of a server-sent event, whose `event` is `change`. Events of the type `ping`
 * arrive every 25 s and keep the connection open. Other processes do not report here, so also reload the visible list every 30 s.
 */
export interface ConsoleChange {
  readonly topic: 'deliveries' | 'endpoints' | 'inbox' | 'activity';
  /** Id of the delivery or endpoint; absent if several changed. */
  readonly id?: string;
  readonly at: string;
}
