import type { Duration } from '../clock/duration.js';
import type { HashAlgorithm, WebhookProfile } from '../token/webhook-token.constants.js';
import type { FailureReason } from '../queue/failure-reason.js';
import type { DeliveryMethod } from '../queue/webhook-delivery.interface.js';
import type { StoredEndpointSettings } from './endpoint-store.js';
import type { TokenIdScope } from '../sending/destination.js';
import type { EndpointDisabledReason } from '../sending/delivery-target.js';

/** How an endpoint is spoken to, where it differs from the publisher's own settings. */
export interface EndpointSettings {
  /** Default the publisher's. */
  readonly method?: DeliveryMethod | undefined;
  /** The wire format it is sent; default the publisher's. */
  readonly profile?: WebhookProfile | undefined;
  /** Digest of a POST's body; default the publisher's. */
  readonly hash?: HashAlgorithm | undefined;
  /** Which `jti` the attempts of one delivery carry; default `'attempt'`, a fresh one for each. */
  readonly jti?: TokenIdScope | undefined;
  /** For one attempt; default the publisher's. */
  readonly timeout?: Duration | undefined;
  /** Headers of every request; none that frame or authenticate it. They are stored as they are: no credentials. */
  readonly headers?: Readonly<Record<string, string>> | undefined;
  /** The `aud` of its tokens. */
  readonly audience?: string | readonly string[] | undefined;
  /** The `sub` of its tokens. */
  readonly subject?: string | undefined;
}

/** An endpoint to create. */
export interface NewEndpoint extends EndpointSettings {
  /** Unique over all tenants, and no URL; 1 to 255 characters. Default a random UUID. */
  readonly id?: string | undefined;
  /** `https:`, without user name and password; at most 2048 characters. */
  readonly url: string;
  /** Names or patterns of the events sent here: `order.*`, `refund.**`; default `['**']`, every event. */
  readonly events?: readonly string[] | undefined;
  /** Gets the events published for this tenant and no others; default: those published for none. It never changes. */
  readonly tenant?: string | undefined;
  /** At most 1024 characters. */
  readonly description?: string | undefined;
  /** The application's own notes: at most 50, each of at most 1024 characters under a name of at most 255. */
  readonly metadata?: Readonly<Record<string, string>> | undefined;
  /** A secret that the receiver has already, of at least 32 bytes; default a random one, which is given back once. */
  readonly secret?: string | undefined;
  /** `'publisher'`: the publisher's own key signs. Default `'secret'`, a secret of its own. */
  readonly signing?: 'secret' | 'publisher' | undefined;
}

/** What {@link EndpointChanges} may hold `null` for. */
type Removable = EndpointSettings & Pick<NewEndpoint, 'description' | 'metadata'>;

/** What to change of an endpoint. What is left out stays; `null` takes a value away, so that the default serves again. */
export type EndpointChanges = Pick<Partial<NewEndpoint>, 'url' | 'events'> & {
  readonly [Name in keyof Removable]?: Removable[Name] | null;
};

/** A key of an endpoint, without the secret. */
export interface EndpointKeyView {
  /** Names the key in tokens. */
  readonly kid: string;
  /** From when it signs, until a newer one does. */
  readonly signsFrom: Date;
}

/** An endpoint without its secrets. */
export interface WebhookEndpointView {
  readonly id: string;
  /** Absent for those that get the events of no tenant. */
  readonly tenant?: string;
  readonly url: string;
  readonly events: readonly string[];
  readonly description?: string;
  readonly metadata?: Readonly<Record<string, string>>;
  /** What differs from the publisher's own; the timeout in milliseconds. */
  readonly settings: StoredEndpointSettings;
  /** Its own keys, the oldest first; none where the publisher signs, and for endpoints of the options. */
  readonly keys: readonly EndpointKeyView[];
  /** Absent while it gets events. */
  readonly disabled?: { readonly at: Date; readonly reason: EndpointDisabledReason };
  /** `'options'`: it is part of the configuration, and only that changes it. */
  readonly source: 'options' | 'store';
  /** Absent for endpoints of the options. */
  readonly createdAt?: Date;
  /** Absent for endpoints of the options. */
  readonly updatedAt?: Date;
  /** Rises by one with every change. */
  readonly version: number;
}

/** An endpoint that was created. */
export interface CreatedEndpoint {
  readonly endpoint: WebhookEndpointView;
  /** What the receiver verifies with. Given here and never again; absent where it was not made here. */
  readonly secret?: string;
}

/** Which endpoints to list. */
export interface EndpointListRequest {
  /** Those of this tenant; `null` for those of none; left out, those of all. `undefined` is refused: it may be a mistake. */
  readonly tenant?: string | null;
  /** What the page before gave as `next`. */
  readonly after?: string | undefined;
  /** At most so many, 1 to 1000; default 100. */
  readonly limit?: number | undefined;
}

/** A page of endpoints, in the order of their ids. */
export interface EndpointPage {
  readonly endpoints: readonly WebhookEndpointView[];
  /** For `after` of the next page; absent on the last one. */
  readonly next?: string;
}

/** How to replace an endpoint's key. */
export interface KeyRotationOptions {
  /** How long the old key goes on signing, so that the receiver learns the new one in time; default `'24h'`. */
  readonly overlap?: Duration | undefined;
  /** A secret that the receiver has already; default a random one, which is given back once. */
  readonly secret?: string | undefined;
}

/** A key that was made or taken. */
export interface RotatedKey {
  /** Given here and never again; absent where it was not made here. */
  readonly secret?: string;
  /** Names the new key in tokens. */
  readonly kid: string;
  /** From when it signs; until then the old one does. */
  readonly signsFrom: Date;
}

/** How a test of an endpoint ended. */
export interface EndpointTestResult {
  /** Whether the receiver acknowledged it. */
  readonly delivered: boolean;
  /** The receiver's status, if it answered. */
  readonly statusCode?: number;
  readonly durationMs: number;
  /** Absent when `delivered`. */
  readonly failureReason?: FailureReason;
}
