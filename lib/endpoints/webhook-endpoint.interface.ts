import type { Duration } from '../clock/duration.js';
import type { FailureReason } from '../queue/webhook-delivery.js';
import type { WebhookEndpointFilter } from './endpoint-filter.js';
import type { StoredEndpoint, StoredEndpointSettings } from './endpoint-store.js';
import type { WebhookEventName } from '../token/webhook-event-map.js';
import type { SentProfile } from '../token/webhook-token.constants.js';
import type { CredentialKind, EndpointCredentials } from '../sending/endpoint-credentials.js';
import type { EndpointSettings, EndpointDisabledReason } from '../sending/endpoint.js';

/** An endpoint to create. */
export interface NewEndpoint extends EndpointSettings {
  /** Unique across all tenants, 1 to 255 characters, and not a URL, `.` or `..`. Default: a random UUID. */
  readonly id?: string | undefined;
  /** `https:`, without user name and password; at most 2048 characters. */
  readonly url: string;
  /** Names or patterns of the events sent here: `order.*`, `refund.**`; default `['**']`, every event. */
  readonly events?: readonly string[] | undefined;
  /** The tenant whose events it receives, not `.` or `..`; default: events without a tenant. It never changes. `undefined` is refused. */
  readonly tenant?: string;
  /** Headers of every request; none that frame or authenticate it. They are stored in the clear: secrets belong in `credentials`. */
  readonly headers?: EndpointSettings['headers'];
  /** At most 1024 characters. */
  readonly description?: string | undefined;
  /** Notes of the application: at most 50, names of at most 255 and values of at most 1024 characters. */
  readonly metadata?: Readonly<Record<string, string>> | undefined;
  /** A secret of at least 32 bytes that the receiver knows already; default: a random one, which is returned once. */
  readonly secret?: string | undefined;
  /** `'secret'` (default): the endpoint has a secret of its own; `'publisher'`: the publisher's key signs. */
  readonly signing?: 'secret' | 'publisher' | undefined;
  /** Which of these events `publish` sends, by their content; default: all. `send` ignores it. */
  readonly filter?: WebhookEndpointFilter | undefined;
  /**
   * What the endpoint requires besides the signature. They are encrypted like its secret, cannot be read again, and are only
   * sent to the origin of this URL.
   */
  readonly credentials?: EndpointCredentials | undefined;
}

/** Members that {@link EndpointChanges} may set to `null`. */
type Removable = EndpointSettings &
  Pick<NewEndpoint, 'description' | 'metadata' | 'filter' | 'credentials'>;

/** A change of an endpoint. Members that are left out stay; `null` removes a value, so that the default applies. */
export type EndpointChanges = Pick<Partial<NewEndpoint>, 'url' | 'events'> & {
  readonly [Name in keyof Removable]?: Removable[Name] | null;
};

/** An endpoint without its secrets. */
export interface WebhookEndpointView extends Pick<
  StoredEndpoint,
  'id' | 'tenant' | 'url' | 'events' | 'description' | 'metadata'
> {
  /** Settings that differ from the publisher's; the timeout in milliseconds. */
  readonly settings: StoredEndpointSettings;
  /** Its own keys without the secrets, oldest first; empty if the publisher signs, and for configured endpoints. */
  readonly keys: readonly {
    /** The key id in tokens. */
    readonly kid: string;
    /** From when it signs, until a newer one does. */
    readonly signsFrom: Date;
  }[];
  /** The kinds of its credentials; absent if it has none. */
  readonly credentials?: readonly CredentialKind[];
  /** Absent while the endpoint is enabled. */
  readonly disabled?: { readonly at: Date; readonly reason: EndpointDisabledReason };
  /** Since when it is paused by {@link WebhookEndpoints.pause}: its deliveries wait. */
  readonly pausedAt?: Date;
  /** `'options'`: configured, and changed in the configuration only. */
  readonly source: 'options' | 'store';
  /** Absent for configured endpoints. */
  readonly createdAt?: Date;
  /** Absent for configured endpoints. */
  readonly updatedAt?: Date;
  /** Every change adds one. */
  readonly version: number;
}

/** An endpoint that was created. */
export interface CreatedEndpoint {
  readonly endpoint: WebhookEndpointView;
  /** The receiver's secret. It cannot be read again; absent if the caller passed one. */
  readonly secret?: string;
}

/** Limits a call to one tenant. */
export interface EndpointScope {
  /** `null` for endpoints without a tenant. */
  readonly tenant: string | null;
}

export interface EndpointListRequest {
  /** Endpoints of this tenant; `null` for endpoints without a tenant; left out, all. `undefined` is refused. */
  readonly tenant?: string | null;
  /** `next` of the previous page. */
  readonly after?: string | undefined;
  /** 1 to 1000; default 100. */
  readonly limit?: number | undefined;
}

/** A page of endpoints, ordered by id. */
export interface EndpointPage {
  readonly endpoints: readonly WebhookEndpointView[];
  /** Pass it as `after` for the next page; absent on the last one. */
  readonly next?: string;
}

/** How to replace an endpoint's key. */
export interface KeyRotationOptions {
  /** How long the old key goes on signing, which is the receiver's time to add the new one; default `'24h'`. */
  readonly overlap?: Duration | undefined;
  /** A secret that the receiver knows already; default: a random one, which is returned once. */
  readonly secret?: string | undefined;
}

/** A new key of an endpoint. */
export interface RotatedKey {
  /** It cannot be read again; absent if the caller passed one. */
  readonly secret?: string;
  /** The key id of the new key in tokens. */
  readonly kid: string;
  /** From when it signs; until then the old key does. */
  readonly signsFrom: Date;
}

/** What this process has learnt about an endpoint since it started. */
export interface EndpointCircuitView {
  /** `open`: the endpoint keeps failing, and its deliveries wait; `trial`: one attempt decides whether it closes. */
  readonly state: 'closed' | 'open' | 'trial';
  /** Failed attempts since the last success. */
  readonly failuresInRow: number;
  /** When the current run of at least five failures began. */
  readonly failingSince?: Date;
  /** Deliveries wait until then, because the circuit is open or the receiver asked for a pause. */
  readonly pausedUntil?: Date;
}

/** The wire format of an endpoint, now and in what it acknowledged. */
export interface EndpointFormat {
  readonly id: string;
  /** Absent if it receives events without a tenant. */
  readonly tenant?: string;
  /** How its requests are signed now. */
  readonly profile: SentProfile;
  /**
   * How the last request was signed that it acknowledged, to any of the deliveries of this process; absent if there was none since its
   * start. In tandem, only the receiver knows which of the two signatures it verified.
   */
  readonly acknowledged?: {
    readonly profile: SentProfile;
    /** Since when it has acknowledged no other format. */
    readonly since: Date;
    /** When it acknowledged the last one. */
    readonly at: Date;
  };
}

/** A page of {@link WebhookEndpoints.report}, ordered by id. */
export interface EndpointFormatPage {
  readonly endpoints: readonly EndpointFormat[];
  /** Pass it as `after` for the next page; absent on the last one. */
  readonly next?: string;
}

/** Which endpoint of {@link WebhookEndpoints.test}, and what it gets. */
export interface EndpointTestOptions extends Partial<EndpointScope> {
  /** A defined event, whose first example is sent as a real event; default `webhook.test` with the data `{ "test": true }`. */
  readonly event?: WebhookEventName;
}

/** The result of a test event. */
export interface EndpointTestResult {
  /** Whether the receiver acknowledged it. */
  readonly delivered: boolean;
  /** Absent if the receiver did not answer. */
  readonly statusCode?: number;
  readonly durationMs: number;
  /** Absent when `delivered`. */
  readonly failureReason?: FailureReason;
}
