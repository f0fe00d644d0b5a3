import type { WebhookClock } from '../clock/webhook-clock.js';
import { isWebhookError } from '../errors/webhook.error.js';
import type { StaticIssuerKeys, MoreKeys } from '../token/keys/key-ring.js';
import type { IssuerKeys } from '../token/keys/key-source.js';
import type { VerificationKey } from '../token/keys/token-key.js';
import { createKeySetClient, type FetchJson } from './key-set-client.js';
import { type KeySetStatus, RemoteKeySet } from './remote-key-set.js';
import type { ResolvedJwksOptions } from './jwks-options.js';
import { OutageLog, type KeyLog } from './key-log.js';
import type { WebhookIssuer } from './webhook-issuer.js';

/** The key sets of a list of issuers that is being parsed. */
interface KeySetDraft {
  readonly moreKeys: MoreKeys;
  /** Called once the list is valid: sets that it does not contain are dropped. */
  adopt(): void;
}

/**
 * The remote key sets of a receiver, by address. Issuers with the same address share one set, and a new list of issuers
 * reuses the sets of the last one.
 */
export class RemoteKeySets {
  private sets = new Map<string, RemoteKeySet>();
  private readonly fetch: FetchJson;

  constructor(
    private readonly options: ResolvedJwksOptions,
    private readonly clock: WebhookClock,
    private readonly log: KeyLog,
  ) {
    this.fetch = createKeySetClient(options);
  }

  status(): readonly KeySetStatus[] {
    return [...this.sets.values()].map((set) => set.status());
  }

  /** Starts a new list of issuers, in which each `jwksUri` gets its set. */
  startList(): KeySetDraft {
    const named = new Map<string, RemoteKeySet>();
    return {
      moreKeys: (entry, configured, fault) => {
        const { jwksUri } = entry as WebhookIssuer;
        if (jwksUri === undefined) return undefined;
        const url = this.checkedUrl(jwksUri, (message) => fault('.jwksUri', message));
        if (url === undefined) return configured ?? NO_KEYS;
        const set = named.get(url.href) ?? this.sets.get(url.href) ?? this.setAt(url);
        named.set(url.href, set);
        return new RemoteIssuerKeys(entry.issuer, configured, set);
      },
      adopt: () => void (this.sets = named),
    };
  }

  private checkedUrl(uri: unknown, fault: (message: string) => void): URL | undefined {
    if (typeof uri !== 'string') {
      fault('must be a string: the https: URL of the JSON Web Key Set');
      return undefined;
    }
    if (!this.options.allowHttp && /^\s*http:/i.test(uri)) {
      fault(
        'must be an https: URL: over plain http:, anyone on the network path can insert their own key. For a test, set jwksFetch.allowHttp',
      );
      return undefined;
    }
    try {
      return this.options.policy.checkUrl(uri);
    } catch (error) {
      if (!isWebhookError(error)) throw error;
      fault(error.message);
      return undefined;
    }
  }

  private setAt(url: URL): RemoteKeySet {
    return new RemoteKeySet(url, {
      ...this.options,
      fetch: this.fetch,
      clock: this.clock,
      log: this.log,
      outage: new OutageLog(`The keys at ${url.host}`, this.log),
    });
  }
}

/** The keys of an invalid entry, so that it is not also reported as an entry without keys. */
const NO_KEYS: IssuerKeys = { issuer: '', candidates: () => [] };

/** The keys of an issuer with a `jwksUri`, and those in its entry. */
class RemoteIssuerKeys implements IssuerKeys {
  constructor(
    readonly issuer: string,
    private readonly configured: StaticIssuerKeys | undefined,
    private readonly set: RemoteKeySet,
  ) {}

  async candidates(kid: string | undefined, now: number): Promise<readonly VerificationKey[]> {
    const { configured } = this;
    // During a migration from a secret to a key set, old tokens have the old kid, or none.
    return configured !== undefined && (kid === undefined || configured.hasKid(kid))
      ? configured.candidates(kid, now)
      : this.set.candidates(kid);
  }

  known(): readonly VerificationKey[] {
    return [...(this.configured?.known() ?? []), ...this.set.known()];
  }
}
