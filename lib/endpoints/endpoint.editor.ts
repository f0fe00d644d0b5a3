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
 * Has every secret of a store sealed with the key that seals now.
 *
 * @returns how many endpoints were changed
 * @throws {@link WebhookStoreError} `sealed_secret_unreadable`, after all others
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

/** Somebody else may come first so often. */
const MOST_TRIES = 10;

/** Whose endpoints a call may see. */
export interface EndpointScope {
  /** This tenant's; `null` for those of none. */
  readonly tenant: string | null;
}

/** A change of one endpoint. */
export interface EndpointChange {
  /** @returns the endpoint as it shall be, its version aside; `undefined` where nothing is to be changed */
  readonly make: (current: StoredEndpoint) => StoredEndpoint | undefined;
  /** Whether the change is still what was meant, although somebody else made one since. Default: always. */
  readonly commutes?: (before: StoredEndpoint, now: StoredEndpoint) => boolean;
}

/** Changes stored endpoints so that no change of somebody else is lost. */
export class EndpointEditor {
  constructor(
    private readonly store: EndpointStore,
    private readonly sealer: SecretSealer,
    private readonly clock: WebhookClock,
  ) {}

  /** @throws {@link WebhookDeliveryError} `unknown_endpoint`, also for an endpoint outside of the scope */
  async find(id: string, scope?: EndpointScope): Promise<StoredEndpoint> {
    const found = await this.store.find(id);
    if (found === undefined || !isInScope(found, scope)) throw unknownEndpoint();
    return found;
  }

  /**
   * Changes an endpoint, and seals its keys anew.
   *
   * @returns it as it is now, and whether it was changed
   * @throws {@link WebhookDeliveryError} `unknown_endpoint`, `endpoint_changed`
   */
  async change(
    id: string,
    scope: EndpointScope | undefined,
    { make, commutes }: EndpointChange,
  ): Promise<{ readonly endpoint: StoredEndpoint; readonly changed: boolean }> {
    const before = await this.find(id, scope);
    let current = before;
    for (let tries = 0; tries < MOST_TRIES; tries++) {
      const wanted = make(current);
      if (wanted === undefined) return { endpoint: current, changed: false };
      const now = this.clock.now();
      const keys = this.resealed(id, withoutSpent(wanted.keys, now));
      const endpoint = { ...wanted, keys, version: current.version + 1, updatedAt: now };
      if (await this.store.replace(endpoint)) return { endpoint, changed: true };
      current = await this.find(id, scope);
      // Deleted and made anew meanwhile: it is another one.
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
        // It stays as it is: an endpoint whose secret is lost can still be disabled, or get another.
        if (!isWebhookError(error, 'sealed_secret_unreadable')) throw error;
        return key;
      }
    });
  }
}

/** Whether a call with this scope may see the endpoint. */
export function isInScope(
  { tenant }: Pick<StoredEndpoint, 'tenant'>,
  scope: EndpointScope | undefined,
): boolean {
  return scope === undefined || (scope.tenant ?? undefined) === tenant;
}

/** Keys without those that a newer one has taken the place of. */
function withoutSpent(
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
