import { WebhookStoreError } from '../errors/webhook.error.js';
import { Problems } from '../options/problems.js';
import { object } from '../options/rules.js';
import {
  ENDPOINT_SETTINGS,
  type EndpointSettings,
  applySettings,
} from '../sending/endpoint-settings.js';
import { EndpointState } from '../sending/endpoint.js';
import { type EndpointSigner, RotatingTokenSigner } from '../signing/endpoint-signer.js';
import type { TokenSignerOptions, WebhookTokenInput } from '../token/token-signer.js';
import type { ResolvedEndpointOptions } from './endpoint-options.js';
import type { StoredEndpoint } from './endpoint-store.js';
import type { RegisteredEndpoint } from './endpoint.registry.js';
import type { SecretSealer } from './secret-sealer.js';

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
    const signer = problems.all.length > 0 ? unusable(stored, problems) : this.signerOf(stored);
    return {
      ...settled,
      signer,
      endpointId: id,
      url,
      label: `endpoint "${id}"`,
      state,
      stored,
      tenant,
    };
  }

  private signerOf(stored: StoredEndpoint): EndpointSigner {
    const { sealer, issuer, tokenLifetime, clock, defaults } = this.options;
    if (stored.keys.length === 0) return defaults.signer;
    const shared = { issuer, lifetime: tokenLifetime, now: () => clock.now() };
    return new SealedTokenSigner(stored, sealer, shared);
  }
}

/** Signs with the keys of a stored endpoint, which are decrypted on first use and cached. */
class SealedTokenSigner implements EndpointSigner {
  readonly algorithms = ['HS256'] as const;

  private signer: RotatingTokenSigner | undefined;

  constructor(
    private readonly endpoint: Pick<StoredEndpoint, 'id' | 'keys'>,
    private readonly sealer: SecretSealer,
    private readonly options: Omit<TokenSignerOptions, 'key'>,
  ) {}

  /** @throws {@link WebhookStoreError} `sealed_secret_unreadable`, on every call until the key is readable */
  sign(input: WebhookTokenInput): string | Promise<string> {
    this.signer ??= this.open();
    return this.signer.sign(input);
  }

  private open(): RotatingTokenSigner {
    const keys = this.endpoint.keys.map((key, index) => ({
      kid: key.kid,
      key: this.sealer.open(this.endpoint.id, key),
      // The first key signs at any time: this clock may be behind that of the process that created it.
      notBefore: index === 0 ? undefined : new Date(key.notBefore),
    }));
    return new RotatingTokenSigner({ ...this.options, keys });
  }
}

const SETTINGS = object<EndpointSettings>()(ENDPOINT_SETTINGS);

/** A newer version of this package may have stored others. */
function knownOf(settings: EndpointSettings): EndpointSettings {
  const isKnown = ([name]: [string, unknown]): boolean => Object.hasOwn(ENDPOINT_SETTINGS, name);
  return Object.fromEntries(Object.entries(settings).filter(isKnown));
}

function isSame(a: StoredEndpoint, b: StoredEndpoint): boolean {
  return a === b || JSON.stringify(a) === JSON.stringify(b);
}

/** For settings stored by hand or by another version of this package: deliveries wait until they are corrected. */
function unusable({ id }: StoredEndpoint, { all }: Problems): EndpointSigner {
  const where = all.map(({ path }) => path).join(', ');
  return {
    algorithms: ['HS256'],
    sign() {
      throw new WebhookStoreError(
        'endpoint_unreadable',
        `The stored settings of endpoint "${id}" are invalid (${where}): update the endpoint with valid ones.`,
      );
    },
  };
}
