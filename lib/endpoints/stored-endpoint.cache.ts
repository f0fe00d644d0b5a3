import { WebhookStoreError } from '../errors/webhook.error.js';
import { Problems } from '../options/problems.js';
import { object } from '../options/rules.js';
import { applySettings, EndpointState } from '../sending/endpoint.js';
import { RotatingTokenSigner } from '../signing/endpoint-signer.js';
import { HeldSigningKeys } from '../signing/signing-keys.js';
import { standardWebhooksSigner } from '../signing/standard-webhooks-signer.js';
import type { WebhookEndpointFilter } from './endpoint-filter.js';
import { type ResolvedEndpointOptions, STORED_SETTINGS } from './endpoint-options.js';
import type { SecretSealer } from './secret-sealer.js';
import { openCredentials } from './stored-credentials.js';
import type { EndpointCredentials } from '../sending/endpoint-credentials.js';
import { withoutRetired } from './endpoint.directory.js';
import { withinLimits } from './endpoint-limits.js';
import { enabledAt, type StoredEndpoint, type StoredEndpointSettings } from './endpoint-store.js';
import type { RegisteredEndpoint } from './endpoint.registry.js';

/** The least recently used endpoint is evicted. */
const MAX_CACHED_ENDPOINTS = 10_000;

interface CachedEndpoint extends RegisteredEndpoint {
  readonly stored: StoredEndpoint;
}

/** Makes stored endpoints ready to send to: once for each version, with the state of earlier versions. */
export class StoredEndpointCache {
  private readonly known = new Map<string, CachedEndpoint>();

  constructor(private readonly options: ResolvedEndpointOptions) {}

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

  latest({ id, createdAt }: StoredEndpoint): RegisteredEndpoint | undefined {
    const known = this.known.get(id);
    return known?.stored.createdAt === createdAt ? known : undefined;
  }

  forget(id: string): void {
    this.known.delete(id);
  }

  cached(): readonly RegisteredEndpoint[] {
    return [...this.known.values()];
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

const SETTINGS = object<StoredEndpointSettings>()(STORED_SETTINGS);

/** For a filter that cannot be read: the endpoint must not get events that its filter may exclude. */
const NOTHING: WebhookEndpointFilter = { $or: [] };

/** A newer version of this package may have stored others. */
function knownOf(settings: StoredEndpointSettings): StoredEndpointSettings {
  const isKnown = ([name]: [string, unknown]): boolean => Object.hasOwn(STORED_SETTINGS, name);
  return Object.fromEntries(Object.entries(settings).filter(isKnown));
}

function isSame(a: StoredEndpoint, b: StoredEndpoint): boolean {
  return a === b || JSON.stringify(a) === JSON.stringify(b);
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
