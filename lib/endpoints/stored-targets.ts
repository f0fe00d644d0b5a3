import { WebhookStoreError } from '../errors/webhook.error.js';
import { ConfigurationFaults } from '../options/configuration-faults.js';
import { DestinationState } from '../sending/delivery-target.js';
import type { MaybePromise } from '../token/maybe-promise.js';
import { RotatingTokenSigner } from '../signing/rotating-token-signer.js';
import type { TokenSignerOptions, WebhookTokenInput } from '../token/token-signer.js';
import type { SealedEndpointKey, StoredEndpoint } from './endpoint-store.js';
import type { SecretSealer } from './secret-sealer.js';
import { applySettings } from '../sending/destination.js';
import type { DestinationSigner } from '../signing/destination-signer.js';
import type { EndpointTarget } from './endpoint-target.js';
import type { ResolvedEndpointOptions } from './endpoint-options.js';

/** Signs with the keys of a stored endpoint. They are opened when they are first needed, and kept. */
class SealedTokenSigner implements DestinationSigner {
  readonly algorithms = ['HS256'] as const;

  private signer: RotatingTokenSigner | undefined;

  constructor(
    private readonly endpoint: Pick<StoredEndpoint, 'id' | 'keys'>,
    private readonly sealer: SecretSealer,
    private readonly options: Omit<TokenSignerOptions, 'key'>,
  ) {}

  /** @throws {@link WebhookStoreError} `sealed_secret_unreadable`, at each call until it is readable */
  sign(input: WebhookTokenInput): MaybePromise<string> {
    this.signer ??= this.open();
    return this.signer.sign(input);
  }

  private open(): RotatingTokenSigner {
    const keys = this.endpoint.keys.map((key, index) => ({
      kid: key.kid,
      key: this.sealer.open(this.endpoint.id, key),
      // There is always one to sign with, also by a clock that is behind the one of the process that made it.
      notBefore: index === 0 ? undefined : momentOf(key),
    }));
    return new RotatingTokenSigner({ ...this.options, keys });
  }
}

function momentOf({ notBefore }: SealedEndpointKey): Date {
  return new Date(notBefore);
}

/** Endpoints whose targets are kept ready; the one not used for longest is forgotten first. */
const MAX_REMEMBERED_ENDPOINTS = 10_000;

interface Known {
  readonly stored: StoredEndpoint;
  readonly target: EndpointTarget;
}

/** Makes destinations of stored endpoints: once for each version, with what was learnt of the ones before. */
export class StoredTargets {
  private readonly known = new Map<string, Known>();

  constructor(private readonly options: ResolvedEndpointOptions) {}

  of(stored: StoredEndpoint): EndpointTarget {
    const known = this.known.get(stored.id);
    if (known === undefined || known.stored.createdAt !== stored.createdAt) {
      return this.remember(stored, new DestinationState());
    }
    if (stored.version !== known.stored.version) {
      const isReachedAlike =
        stored.url === known.stored.url && stored.enabledAt === known.stored.enabledAt;
      const state = isReachedAlike ? known.target.state : new DestinationState();
      // One that was asked for before a change may be read after it; it must not undo what came with the change.
      const isOlder = stored.version < known.stored.version;
      return isOlder ? this.make(stored, state) : this.remember(stored, state);
    }
    // One that was deleted and made anew may be of the same version, and of the same millisecond.
    if (!isSame(stored, known.stored)) return this.remember(stored, new DestinationState());
    this.known.delete(stored.id);
    this.known.set(stored.id, known);
    return known.target;
  }

  private remember(stored: StoredEndpoint, state: DestinationState): EndpointTarget {
    const target = this.make(stored, state);
    this.known.delete(stored.id);
    this.known.set(stored.id, { stored, target });
    if (this.known.size > MAX_REMEMBERED_ENDPOINTS) {
      this.known.delete(this.known.keys().next().value!);
    }
    return target;
  }

  private make(stored: StoredEndpoint, state: DestinationState): EndpointTarget {
    const { id, tenant, url } = stored;
    const faults = new ConfigurationFaults('settings');
    const settled = applySettings(this.options.defaults, stored.settings, faults);
    const signer = faults.all.length > 0 ? unusable(stored, faults) : this.signerOf(stored);
    return {
      ...settled,
      signer,
      endpointId: id,
      url,
      label: `endpoint "${id}"`,
      state,
      stored,
      ...(tenant !== undefined && { tenant }),
    };
  }

  private signerOf(stored: StoredEndpoint): DestinationSigner {
    const { sealer, issuer, tokenLifetime, clock, defaults } = this.options;
    if (stored.keys.length === 0) return defaults.signer;
    const shared = { issuer, lifetime: tokenLifetime, now: () => clock.now() };
    return new SealedTokenSigner(stored, sealer, shared);
  }
}

function isSame(a: StoredEndpoint, b: StoredEndpoint): boolean {
  return a === b || JSON.stringify(a) === JSON.stringify(b);
}

/** What was stored by hand, or by another version of this package: its deliveries wait until it is corrected. */
function unusable({ id }: StoredEndpoint, { all }: ConfigurationFaults): DestinationSigner {
  const where = all.map(({ path }) => path).join(', ');
  return {
    algorithms: ['HS256'],
    sign() {
      throw new WebhookStoreError(
        'endpoint_unreadable',
        `What is stored of endpoint "${id}" cannot be used (${where}): update it with values that can.`,
      );
    },
  };
}
