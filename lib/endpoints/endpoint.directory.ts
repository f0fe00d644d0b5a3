import {
  isWebhookError,
  WebhookDeliveryError,
  type WebhookError,
} from '../errors/webhook.error.js';
import { unprintedHeaders } from '../options/unprinted.js';
import type { ResolvedEndpointOptions } from './endpoint-options.js';
import type { EndpointPageRequest, SealedEndpointKey, StoredEndpoint } from './endpoint-store.js';
import { openCredentials, sealCredentials } from './stored-credentials.js';
import type { ConfiguredEndpoints } from './endpoint.registry.js';
import type { EndpointScope, WebhookEndpointView } from './webhook-endpoint.interface.js';

/** Attempts at a change while other changes come first. */
const MAX_TRIES = 10;
/** Endpoints that are read at a time to seal their secrets. */
const PAGE = 100;

/** A copy of an endpoint without its sealed keys. */
function viewOf(
  endpoint: StoredEndpoint,
  source: WebhookEndpointView['source'],
): WebhookEndpointView {
  const { id, tenant, url, events, description, metadata, settings, keys, disabled, pausedAt } =
    endpoint;
  const { headers } = settings;
  const { credentials } = endpoint;
  return {
    id,
    tenant,
    url,
    events: [...events],
    description,
    metadata: metadata && { ...metadata },
    settings:
      headers === undefined ? { ...settings } : { ...settings, headers: unprintedHeaders(headers) },
    keys: keys.map(({ kid, notBefore }) => ({ kid, signsFrom: new Date(notBefore) })),
    ...(credentials && { credentials: [...credentials.kinds] }),
    disabled: disabled && { at: new Date(disabled.at), reason: disabled.reason },
    pausedAt: pausedAt === undefined ? undefined : new Date(pausedAt),
    source,
    createdAt: source === 'store' ? new Date(endpoint.createdAt) : undefined,
    updatedAt: source === 'store' ? new Date(endpoint.updatedAt) : undefined,
    version: endpoint.version,
  };
}

export interface EndpointChange {
  /** Returns the new endpoint, without regard to its version; `undefined` to change nothing. */
  readonly make: (current: StoredEndpoint) => StoredEndpoint | undefined;
  /** The endpoint on which the change is based. Default: as it is stored at first. */
  readonly before?: StoredEndpoint;
  /** Whether the change still applies after a concurrent change. Default: always. */
  readonly commutes?: (before: StoredEndpoint, now: StoredEndpoint) => boolean;
}

/**
 * Reads configured and stored endpoints as one list, and changes stored ones without overwriting concurrent changes. If both
 * have an id, the configured endpoint wins.
 */
export class EndpointDirectory {
  constructor(
    private readonly configured: ConfiguredEndpoints,
    private readonly options: Pick<ResolvedEndpointOptions, 'endpointStore' | 'sealer' | 'clock'>,
  ) {}

  /** @throws {@link WebhookDeliveryError} `unknown_endpoint`, also for an endpoint outside the scope */
  async find(id: string, scope: EndpointScope | undefined): Promise<StoredEndpoint> {
    const configured = this.configured.find(id);
    return configured === undefined ? this.findStored(id, scope) : inScope(configured, scope);
  }

  view(endpoint: StoredEndpoint): WebhookEndpointView {
    return viewOf(endpoint, this.configured.has(endpoint.id) ? 'options' : 'store');
  }

  /** A page of endpoints by id, as they are stored. */
  async page({
    tenant,
    after,
    limit,
  }: EndpointPageRequest): Promise<{ rows: readonly StoredEndpoint[]; next?: string }> {
    const page = { tenant, after, limit: limit + 1 };
    const stored = await this.options.endpointStore.list(page);
    const endpoints = [
      ...this.configured.list(page),
      ...stored.filter(({ id }) => !this.configured.has(id)),
    ].sort((a, b) => (a.id < b.id ? -1 : 1));
    const shown = endpoints.slice(0, limit);
    // A full page of the store may be hidden by configured endpoints, and is not the last one.
    const hidden = stored.length > limit ? stored.at(-1)!.id : undefined;
    const next = endpoints.length > limit ? shown.at(-1)!.id : hidden;
    return { rows: shown, next };
  }

  /**
   * Changes a stored endpoint, and seals its keys with the current sealing key.
   *
   * @returns the current endpoint, and whether it was changed
   * @throws {@link WebhookDeliveryError} `unknown_endpoint`, `endpoint_changed`
   */
  async change(
    id: string,
    scope: EndpointScope | undefined,
    { make, commutes, before: given }: EndpointChange,
  ): Promise<{ readonly endpoint: StoredEndpoint; readonly changed: boolean }> {
    const { endpointStore, clock } = this.options;
    let before = given;
    for (let tries = 0; tries < MAX_TRIES; tries++) {
      const current = await this.findStored(id, scope);
      before ??= current;
      // Deleted and created again meanwhile, it is another endpoint under the same id.
      if (current.createdAt !== before.createdAt || commutes?.(before, current) === false) break;
      const wanted = make(current);
      if (wanted === undefined) return { endpoint: current, changed: false };
      const now = clock.now();
      const endpoint = {
        ...this.resealed({ ...wanted, keys: withoutRetired(wanted.keys, now) }),
        version: current.version + 1,
        updatedAt: now,
      };
      if (await endpointStore.replace(endpoint)) return { endpoint, changed: true };
    }
    throw new WebhookDeliveryError(
      'endpoint_changed',
      'The endpoint was changed by another call at the same time: read it again, and repeat the change if it is still needed.',
    );
  }

  /**
   * Seals every secret of the store with the current sealing key.
   *
   * @returns how many endpoints were changed
   * @throws {@link WebhookStoreError} `sealed_secret_unreadable`, after resealing all others
   */
  async reseal(): Promise<number> {
    const { endpointStore, sealer } = this.options;
    const isStale = ({ keys, credentials }: StoredEndpoint): boolean =>
      ![...keys, ...(credentials === undefined ? [] : [credentials])].every((secret) =>
        sealer.isCurrent(secret),
      );
    let resealed = 0;
    let unreadable: WebhookError | undefined;
    for (let after: string | undefined; ;) {
      const page = await endpointStore.list({ after, limit: PAGE });
      for (const { id } of page.filter(isStale)) {
        try {
          const { changed } = await this.change(id, undefined, {
            make: (current) => {
              if (!isStale(current)) return undefined;
              for (const key of current.keys) sealer.open(id, key);
              const { credentials } = current;
              if (credentials !== undefined) openCredentials(sealer, current, credentials);
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

  private async findStored(id: string, scope: EndpointScope | undefined): Promise<StoredEndpoint> {
    return inScope(await this.options.endpointStore.find(id), scope);
  }

  /** The endpoint with all secrets sealed by the current sealing key. */
  private resealed(endpoint: StoredEndpoint): StoredEndpoint {
    const { sealer } = this.options;
    const { id, keys, credentials } = endpoint;
    const sealed = <Secret extends { readonly sealed: string }>(
      secret: Secret,
      seal: () => Secret,
    ): Secret => {
      if (sealer.isCurrent(secret)) return secret;
      try {
        return seal();
      } catch (error) {
        // Kept as it is: an endpoint whose secret is lost can still be disabled, or get a new key.
        if (!isWebhookError(error, 'sealed_secret_unreadable')) throw error;
        return secret;
      }
    };
    return {
      ...endpoint,
      keys: keys.map((key) =>
        sealed(key, () => ({ ...key, sealed: sealer.seal(id, key.kid, sealer.open(id, key)) })),
      ),
      ...(credentials && {
        credentials: sealed(credentials, () =>
          sealCredentials(sealer, endpoint, openCredentials(sealer, endpoint, credentials)),
        ),
      }),
    };
  }
}

/** The same error for an endpoint of another tenant and for one that does not exist, so that ids cannot be probed. */
function inScope(
  endpoint: StoredEndpoint | undefined,
  scope: EndpointScope | undefined,
): StoredEndpoint {
  const isInScope = scope === undefined || (scope.tenant ?? undefined) === endpoint?.tenant;
  if (endpoint !== undefined && isInScope) return endpoint;
  throw new WebhookDeliveryError('unknown_endpoint', 'No endpoint has this id.');
}

/** The keys from the one that signs now; older ones are retired. */
export function withoutRetired(
  keys: readonly SealedEndpointKey[],
  now: number,
): readonly SealedEndpointKey[] {
  const signing = keys.findLastIndex(({ notBefore }) => notBefore <= now);
  return keys.slice(Math.max(0, signing));
}
