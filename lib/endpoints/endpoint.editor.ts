import type { WebhookClock } from '../clock/webhook-clock.js';
import { isWebhookError, type WebhookError } from '../errors/webhook.error.js';
import {
  endpointChanged,
  type EndpointStore,
  type SealedEndpointKey,
  type StoredEndpoint,
  unknownEndpoint,
} from './endpoint-store.js';
import type { SecretSealer } from './secret-sealer.js';

const PAGE = 100;

/**
 * Seals every secret of a store with the current sealing key.
 *
 * @returns how many endpoints were changed
 * @throws {@link WebhookStoreError} `sealed_secret_unreadable`, after resealing all others
 */
export async function resealAll(
  store: EndpointStore,
  sealer: SecretSealer,
  editor: EndpointEditor,
): Promise<number> {
  const isStale = ({ keys }: StoredEndpoint): boolean =>
    !keys.every((key) => sealer.isCurrent(key));
  let resealed = 0;
  let unreadable: WebhookError | undefined;
  for (let after: string | undefined; ;) {
    const page = await store.list({ after, limit: PAGE });
    for (const { id } of page.filter(isStale)) {
      try {
        const { changed } = await editor.change(id, undefined, {
          make: (current) => {
            if (!isStale(current)) return undefined;
            for (const key of current.keys) sealer.open(id, key);
            return current;
          },
        });
        if (changed) resealed++;
      } catch (error) {
        if (isWebhookError(error, 'sealed_secret_unreadable')) unreadable ??= error;
        else if (!isWebhookError(error, 'unknown_endpoint')) throw error;
      }
    }
    if (page.length < PAGE) break;
    after = page.at(-1)!.id;
  }
  if (unreadable !== undefined) throw unreadable;
  return resealed;
}

/** Attempts at a change while other changes come first. */
const MAX_TRIES = 10;

/** Limits a call to one tenant. */
export interface EndpointScope {
  /** `null` for endpoints without a tenant. */
  readonly tenant: string | null;
}

/** A change of one endpoint. */
export interface EndpointChange {
  /** Returns the new endpoint, without regard to its version; `undefined` to change nothing. */
  readonly make: (current: StoredEndpoint) => StoredEndpoint | undefined;
  /** Whether the change still applies after a concurrent change. Default: always. */
  readonly commutes?: (before: StoredEndpoint, now: StoredEndpoint) => boolean;
}

/** Changes stored endpoints without overwriting concurrent changes. */
export class EndpointEditor {
  constructor(
    private readonly store: EndpointStore,
    private readonly sealer: SecretSealer,
    private readonly clock: WebhookClock,
  ) {}

  /** @throws {@link WebhookDeliveryError} `unknown_endpoint`, also for an endpoint outside the scope */
  async find(id: string, scope?: EndpointScope): Promise<StoredEndpoint> {
    const found = await this.store.find(id);
    if (found === undefined || !isInScope(found, scope)) throw unknownEndpoint();
    return found;
  }

  /**
   * Changes an endpoint, and seals its keys with the current sealing key.
   *
   * @returns the current endpoint, and whether it was changed
   * @throws {@link WebhookDeliveryError} `unknown_endpoint`, `endpoint_changed`
   */
  async change(
    id: string,
    scope: EndpointScope | undefined,
    { make, commutes }: EndpointChange,
  ): Promise<{ readonly endpoint: StoredEndpoint; readonly changed: boolean }> {
    const before = await this.find(id, scope);
    let current = before;
    for (let tries = 0; tries < MAX_TRIES; tries++) {
      const wanted = make(current);
      if (wanted === undefined) return { endpoint: current, changed: false };
      const now = this.clock.now();
      const keys = this.resealed(id, withoutRetired(wanted.keys, now));
      const endpoint = { ...wanted, keys, version: current.version + 1, updatedAt: now };
      if (await this.store.replace(endpoint)) return { endpoint, changed: true };
      current = await this.find(id, scope);
      // Deleted and created again meanwhile: another endpoint under the same id.
      if (current.createdAt !== before.createdAt) throw endpointChanged();
      if (commutes?.(before, current) === false) throw endpointChanged();
    }
    throw endpointChanged();
  }

  private resealed(id: string, keys: readonly SealedEndpointKey[]): SealedEndpointKey[] {
    return keys.map((key) => {
      if (this.sealer.isCurrent(key)) return key;
      try {
        return { ...key, sealed: this.sealer.seal(id, key.kid, this.sealer.open(id, key)) };
      } catch (error) {
        // Kept as it is: an endpoint whose secret is lost can still be disabled, or get a new key.
        if (!isWebhookError(error, 'sealed_secret_unreadable')) throw error;
        return key;
      }
    });
  }
}

export function isInScope(
  { tenant }: Pick<StoredEndpoint, 'tenant'>,
  scope: EndpointScope | undefined,
): boolean {
  return scope === undefined || (scope.tenant ?? undefined) === tenant;
}

/** The keys from the one that signs now; older ones are retired. */
function withoutRetired(
  keys: readonly SealedEndpointKey[],
  now: number,
): readonly SealedEndpointKey[] {
  return keys.slice(
    Math.max(
      0,
      keys.findLastIndex(({ notBefore }) => notBefore <= now),
    ),
  );
}
