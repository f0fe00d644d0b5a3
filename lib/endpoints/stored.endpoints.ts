import { isDeepStrictEqual } from 'node:util';
import {
  isWebhookError,
  WebhookDeliveryError,
  type WebhookError,
  WebhookStoreError,
} from '../errors/webhook.error.js';
import { Problems } from '../options/problems.js';
import { object, optional } from '../options/rules.js';
import { applySettings, EndpointState } from '../sending/endpoint.js';
import type { EndpointCredentials } from '../sending/endpoint-credentials.js';
import { RotatingTokenSigner } from '../signing/endpoint-signer.js';
import { HeldSigningKeys } from '../signing/signing-keys.js';
import { standardWebhooksSigner } from '../signing/standard-webhooks-signer.js';
import { STORED_FILTER, type WebhookEndpointFilter } from './endpoint-filter.js';
import { withinLimits } from './endpoint-limits.js';
import {
  enabledAt,
  type StoredEndpoint,
  type StoredEndpointSettings,
  withoutRetired,
} from './endpoint-store.js';
import type { RegisteredEndpoint } from './endpoint.registry.js';
import { type ResolvedEndpointOptions, STORED_SETTINGS } from './endpoint-options.js';
import type { SecretSealer } from './secret-sealer.js';
import { openCredentials, sealCredentials } from './stored-credentials.js';
import type { EndpointScope } from './webhook-endpoint.interface.js';

/** The least recently used endpoint is evicted. */
const MAX_CACHED_ENDPOINTS = 10_000;
/** Attempts at a change while others come first: each failed one means that another call has changed the endpoint. */
const MAX_TRIES = 100;
/** Endpoints that are read at a time to seal their secrets. */
const PAGE = 100;

export interface EndpointChange {
  /** Returns the new endpoint, without regard to its version; `undefined` to change nothing. */
  readonly make: (current: StoredEndpoint) => StoredEndpoint | undefined;
  /** The endpoint on which the change is based. Default: as it is stored at first. */
  readonly before?: StoredEndpoint;
  /** Whether the change still applies after a concurrent change. Default: always. */
  readonly commutes?: (before: StoredEndpoint, now: StoredEndpoint) => boolean;
}

interface CachedEndpoint extends RegisteredEndpoint {
  readonly stored: StoredEndpoint;
}

/** The endpoints of the store: changes them without overwriting concurrent changes, and makes them ready to send to. */
export class StoredEndpoints {
  private readonly known = new Map<string, CachedEndpoint>();

  constructor(private readonly options: ResolvedEndpointOptions) {}

  /** @throws {@link WebhookDeliveryError} `unknown_endpoint`, also for an endpoint outside the scope */
  async find(id: string, scope: EndpointScope | undefined): Promise<StoredEndpoint> {
    return inScope(await this.options.endpointStore.find(id), scope);
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
      const current = await this.find(id, scope);
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

  async remove(id: string): Promise<void> {
    await this.options.endpointStore.remove(id);
    this.known.delete(id);
  }

  /** Makes an endpoint ready to send to: once for each version, with the state of earlier versions. */
  of(stored: StoredEndpoint): RegisteredEndpoint {
    const known = this.known.get(stored.id);
    if (known === undefined || known.stored.createdAt !== stored.createdAt) {
      return this.cache(stored, new EndpointState());
    }
    if (stored.version !== known.stored.version) {
      const keepsState =
        stored.url === known.stored.url && stored.enabledAt === known.stored.enabledAt;
      const state = keepsState ? known.state : new EndpointState();
      // A read that began before a change may end after it; it must not replace the newer version.
      const isOlder = stored.version < known.stored.version;
      return isOlder ? this.make(stored, state) : this.cache(stored, state);
    }
    // Deleted and created again, an endpoint may have the same version and the same millisecond.
    if (!isSame(stored, known.stored)) return this.cache(stored, new EndpointState());
    this.known.delete(stored.id);
    this.known.set(stored.id, known);
    return known;
  }

  /** The newest version of an endpoint that this process knows; `undefined` if it was deleted. */
  latest({ id, createdAt }: StoredEndpoint): RegisteredEndpoint | undefined {
    const known = this.known.get(id);
    return known?.stored.createdAt === createdAt ? known : undefined;
  }

  cached(): readonly RegisteredEndpoint[] {
    return [...this.known.values()];
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

  private cache(stored: StoredEndpoint, state: EndpointState): RegisteredEndpoint {
    const endpoint = this.make(stored, state);
    this.known.delete(stored.id);
    this.known.set(stored.id, endpoint);
    if (this.known.size > MAX_CACHED_ENDPOINTS) {
      this.known.delete(this.known.keys().next().value!);
    }
    return endpoint;
  }

  private make(stored: StoredEndpoint, state: EndpointState): CachedEndpoint {
    const { id, tenant, url } = stored;
    const problems = new Problems('settings');
    const own = SETTINGS(knownOf(stored.settings), problems, '');
    const settled = applySettings(this.options.defaults, own);
    const signers = problems.all.length > 0 ? unusable(stored, problems) : this.signersOf(stored);
    return {
      ...settled,
      ...signers,
      ...withinLimits(settled, this.options.endpointLimits),
      enabledAt: enabledAt(stored),
      filter: problems.has('filter') ? NOTHING : own.filter,
      credentials: this.credentialsOf(stored),
      endpointId: id,
      url,
      label: `endpoint "${id}"`,
      state,
      stored,
      tenant,
    };
  }

  private credentialsOf(stored: StoredEndpoint): RegisteredEndpoint['credentials'] {
    const { credentials } = stored;
    if (credentials === undefined) return undefined;
    let opened: EndpointCredentials | undefined;
    return () => (opened ??= openCredentials(this.options.sealer, stored, credentials));
  }

  private signersOf(stored: StoredEndpoint): Signers {
    const { sealer, issuer, tokenLifetime, clock, defaults } = this.options;
    const { signer, standardWebhooks } = defaults;
    if (stored.keys.length === 0) return { signer, standardWebhooks };
    const keys = new SealedKeys(stored, sealer);
    const now = (): number => clock.now();
    const options = { issuer, lifetime: tokenLifetime, now };
    let opened: RotatingTokenSigner | undefined;
    return {
      signer: {
        algorithms: ['HS256'],
        // Rejects with `sealed_secret_unreadable` until the keys are readable.
        sign: async (input) =>
          (opened ??= new RotatingTokenSigner(keys.open(), options)).sign(input),
      },
      standardWebhooks: {
        sign: (...content) => standardWebhooksSigner(keys.secretsFrom(now())).sign(...content),
      },
    };
  }
}

/** The same error for an endpoint of another tenant and for one that does not exist, so that ids cannot be probed. */
export function inScope(
  endpoint: StoredEndpoint | undefined,
  scope: EndpointScope | undefined,
): StoredEndpoint {
  const isInScope = scope === undefined || (scope.tenant ?? undefined) === endpoint?.tenant;
  if (endpoint !== undefined && isInScope) return endpoint;
  throw new WebhookDeliveryError('unknown_endpoint', 'No endpoint has this id.');
}

type Signers = Pick<RegisteredEndpoint, 'signer' | 'standardWebhooks'>;

/** The keys of a stored endpoint, which are decrypted on first use and cached. */
class SealedKeys {
  #secrets: readonly string[] | undefined;

  constructor(
    private readonly endpoint: Pick<StoredEndpoint, 'id' | 'keys'>,
    private readonly sealer: SecretSealer,
  ) {}

  /** @throws {@link WebhookStoreError} `sealed_secret_unreadable`, on every call until the keys are readable */
  open(): HeldSigningKeys {
    const secrets = this.secrets();
    const keys = this.endpoint.keys.map(({ kid, notBefore }, index) => ({
      kid,
      key: secrets[index]!,
      // The first key signs at any time: this clock may be behind that of the process that created it.
      notBefore: index === 0 ? undefined : new Date(notBefore),
    }));
    return new HeldSigningKeys(keys);
  }

  /** The key that signs now, and those that follow it: the receiver has one of them. */
  secretsFrom(now: number): readonly string[] {
    const { keys } = this.endpoint;
    return this.secrets().slice(keys.length - withoutRetired(keys, now).length);
  }

  private secrets(): readonly string[] {
    const { id, keys } = this.endpoint;
    return (this.#secrets ??= keys.map((key) => this.sealer.open(id, key)));
  }
}

const SETTINGS = object<StoredEndpointSettings>()({
  ...STORED_SETTINGS,
  filter: optional(STORED_FILTER),
});

/** For a filter that cannot be read: the endpoint must not get events that its filter may exclude. */
const NOTHING: WebhookEndpointFilter = { $or: [] };

/** A newer version of this package may have stored others. */
function knownOf(settings: StoredEndpointSettings): StoredEndpointSettings {
  const isKnown = ([name]: [string, unknown]): boolean => Object.hasOwn(STORED_SETTINGS, name);
  return Object.fromEntries(Object.entries(settings).filter(isKnown));
}

/** Compares endpoints as JSON: a store may return their members in another order, and leave out those that are `undefined`. */
function isSame(a: StoredEndpoint, b: StoredEndpoint): boolean {
  if (a === b) return true;
  const [one, other] = [JSON.stringify(a), JSON.stringify(b)];
  return one === other || isDeepStrictEqual(JSON.parse(one), JSON.parse(other));
}

/** For settings stored by hand or by another version of this package: deliveries wait until they are corrected. */
function unusable({ id }: StoredEndpoint, { all }: Problems): Signers {
  const where = all.map(({ path }) => path).join(', ');
  const sign = (): never => {
    throw new WebhookStoreError(
      'endpoint_unreadable',
      `The stored settings of endpoint "${id}" are invalid (${where}): update the endpoint with valid ones.`,
    );
  };
  return { signer: { algorithms: ['HS256'], sign }, standardWebhooks: { sign } };
}
