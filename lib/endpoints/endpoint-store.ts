import { WebhookDeliveryError } from '../errors/webhook.error.js';
import type { DeliveryMethod } from '../queue/webhook-delivery.interface.js';
import { identifierRule, isIdentifier } from '../token/identifier.js';
import type { HashAlgorithm, WebhookProfile } from '../token/webhook-token.constants.js';
import type { EndpointDisabledReason } from '../sending/delivery-target.js';

/** One refusal for an endpoint of another tenant and for one that is nowhere: nobody learns which ids others use. */
export function unknownEndpoint(): WebhookDeliveryError {
  return new WebhookDeliveryError('unknown_endpoint', 'There is no endpoint with this id.');
}

export function endpointExists(): WebhookDeliveryError {
  return new WebhookDeliveryError(
    'endpoint_exists',
    'An endpoint with this id exists: choose another id, or leave it out for a random one.',
  );
}

export function endpointChanged(): WebhookDeliveryError {
  return new WebhookDeliveryError(
    'endpoint_changed',
    'Somebody else changed the endpoint at the same time: read it again, and repeat the change if it is still wanted.',
  );
}

export function endpointIsConfigured(): WebhookDeliveryError {
  return new WebhookDeliveryError(
    'unsupported_option',
    "The endpoint is one of the publisher's options: change it in the configuration.",
  );
}

export function endpointHasNoKey(): WebhookDeliveryError {
  return new WebhookDeliveryError(
    'unsupported_option',
    "The endpoint has no key of its own to rotate: the publisher's signs for it.",
  );
}

/** Whether a text names a destination by itself. No endpoint of a store has such an id, or `send` could mean either. */
export function looksLikeUrl(text: string): boolean {
  return /^[a-z][a-z0-9+.-]*:\/\//i.test(text);
}

/** Tells whether a value can be the id of an endpoint in a store. */
export function isEndpointId(value: unknown): value is string {
  return isIdentifier(value) && !looksLikeUrl(value);
}

/** The rule of {@link isEndpointId} in words. */
export const ENDPOINT_ID_RULE = `${identifierRule('id')}, and no URL`;

/** A secret of one endpoint, sealed: it is of no use without the sealing key. */
export interface SealedEndpointKey {
  /** Names the key in tokens. */
  readonly kid: string;
  /** The secret, by AES-256-GCM, bound to the endpoint and the `kid`; the text names the sealing key. */
  readonly sealed: string;
  /** Epoch milliseconds from which it is signed with; until then its predecessor is. */
  readonly notBefore: number;
}

/** How an endpoint is spoken to, as far as it differs from the publisher's own settings. All of it is JSON. */
export interface StoredEndpointSettings {
  readonly method?: DeliveryMethod;
  readonly profile?: WebhookProfile;
  readonly hash?: HashAlgorithm;
  readonly jti?: 'attempt' | 'delivery';
  /** Milliseconds. */
  readonly timeout?: number;
  readonly headers?: Readonly<Record<string, string>>;
  readonly audience?: string | readonly string[];
  readonly subject?: string;
}

/** An endpoint as a store keeps it. All of it is JSON, and none of it a secret in the clear. */
export interface StoredEndpoint {
  /** Unique over all tenants. */
  readonly id: string;
  /** Whose events it gets; absent for those published for no tenant. It never changes. */
  readonly tenant?: string;
  readonly url: string;
  /** Names or patterns. */
  readonly events: readonly string[];
  readonly description?: string;
  /** The application's own notes. */
  readonly metadata?: Readonly<Record<string, string>>;
  readonly settings: StoredEndpointSettings;
  /** The oldest first; empty where the publisher's own key signs. */
  readonly keys: readonly SealedEndpointKey[];
  /** Absent while it gets events; `at` in epoch milliseconds. */
  readonly disabled?: { readonly at: number; readonly reason: EndpointDisabledReason };
  /** When somebody last enabled it, in epoch milliseconds: what a process has learnt of it before then is forgotten. */
  readonly enabledAt?: number;
  /** 1 at first; rises by one with every change. */
  readonly version: number;
  /** Epoch milliseconds. */
  readonly createdAt: number;
  /** Epoch milliseconds. */
  readonly updatedAt: number;
}

/** What part of the endpoints to list. */
export interface EndpointPageRequest {
  /** Those of this tenant; `null` for those of none; left out, those of all. */
  readonly tenant?: string | null | undefined;
  /** Those behind this id, in the order of ids. */
  readonly after?: string | undefined;
  /** At most so many. */
  readonly limit: number;
}

/**
 * Keeps endpoints: the port between {@link WebhookEndpoints} and where they are kept.
 *
 * - **Nothing is lost by two at once.** `insert` takes an id once; `replace` changes only the version it was told of, and
 *   says whether it did. Of two changes made at the same time, one succeeds.
 * - **Tenants never meet.** `subscribed` gives the endpoints of exactly one tenant, or of exactly none.
 * - **What is written is read.** A `find` that begins after a change has resolved sees it, in any process that shares the
 *   store; what a caller does to an object it was given changes nothing in the store.
 *
 * A store that cannot be reached throws {@link WebhookStoreError} `store_unavailable`. Every implementation must pass the
 * contract suite of `nestjs-webhook-token/testing`.
 */
export abstract class EndpointStore {
  /** Whether what it keeps survives this process. */
  abstract readonly durable: boolean;

  /** Whether it takes changes; one that does not throws `unsupported_option` for each. */
  abstract readonly writable: boolean;

  /** Whether `subscribed` can read within a transaction of the caller's; one that cannot is never passed a `tx`. */
  abstract readonly transactional: boolean;

  /**
   * Checks at start-up that the store can be used: by default, it looks for an endpoint that does not exist.
   *
   * @throws {@link WebhookStoreError} `store_unavailable`, which is retried for some seconds; any other error fails start-up
   */
  async check(): Promise<void> {
    await this.find('start-up check');
  }

  /** @returns `false`, with nothing changed, where the id is taken */
  abstract insert(endpoint: StoredEndpoint): Promise<boolean>;

  /** The endpoint with this id, of whatever tenant; `undefined` where there is none. */
  abstract find(id: string): Promise<StoredEndpoint | undefined>;

  /**
   * The endpoints that get events of this tenant, or of none: all that are not disabled, whatever their patterns.
   *
   * @param options - `tx`: the caller's open transaction, read in so that no second connection is needed while it holds one
   */
  abstract subscribed(
    tenant: string | undefined,
    options?: { readonly tx?: unknown },
  ): Promise<readonly StoredEndpoint[]>;

  /** In the order of their ids, by code units. */
  abstract list(request: EndpointPageRequest): Promise<readonly StoredEndpoint[]>;

  /**
   * Puts `endpoint` in the place of the version before it (`endpoint.version - 1`).
   *
   * @returns `false`, with nothing changed, where that is not the version kept, or none is
   */
  abstract replace(endpoint: StoredEndpoint): Promise<boolean>;

  /** @returns whether there was one */
  abstract remove(id: string): Promise<boolean>;
}
