import type { WebhookClock } from '../clock/webhook-clock.js';
import { isWebhookError } from '../errors/webhook.error.js';
import type { StaticIssuerKeys, MoreKeys } from '../token/keys/key-ring.js';
import type { IssuerKeys } from '../token/keys/key-source.js';
import type { MaybePromise } from '../token/maybe-promise.js';
import type { VerificationKey } from '../token/keys/token-key.js';
import { createKeySetClient, type FetchJson, RemoteKeySet } from './remote-key-set.js';
import type { ResolvedJwksOptions } from './jwks-options.js';
import { TroubleLog, type KeyLog } from './trouble-log.js';
import type { WebhookIssuer } from './webhook-issuer.interface.js';

/** A list of issuers that is being read. */
interface KeySetDraft {
  readonly more: MoreKeys;
  /** The list is going to be used: sets that it does not name are forgotten. */
  adopt(): void;
}

/**
 * The key sets that a receiver reads, by address: issuers with one address share what is known of it, and a new
 * list of issuers finds there what the old one knew.
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

  /** Begins to read a list of issuers: each that has an address gets its set. */
  begin(): KeySetDraft {
    const named = new Map<string, RemoteKeySet>();
    return {
      more: (entry, configured, fault) => {
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
      fault('must be a text: the https: address of the JSON Web Key Set');
      return undefined;
    }
    if (!this.options.allowHttp && /^\s*http:/i.test(uri)) {
      fault(
        'must be an https: address: over plain http: anybody on the way can put in a key of their own. For a test, set jwksFetch.allowHttp',
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
      trouble: new TroubleLog(`The keys at ${url.host}`, this.log),
    });
  }
}

/** Stands in for an entry that is wrong, so that it is not said to have no keys as well. */
const NO_KEYS: IssuerKeys = { issuer: '', candidates: () => [] };

/** The keys of an issuer that publishes them, and those of it that are configured besides. */
class RemoteIssuerKeys implements IssuerKeys {
  constructor(
    readonly issuer: string,
    private readonly configured: StaticIssuerKeys | undefined,
    private readonly set: RemoteKeySet,
  ) {}

  candidates(kid: string | undefined, now: number): MaybePromise<readonly VerificationKey[]> {
    const { configured } = this;
    // A move from a secret to a key set: the old tokens name the old key, or none.
    return configured !== undefined && (kid === undefined || configured.names(kid))
      ? configured.candidates(kid, now)
      : this.set.candidates(kid);
  }

  known(): readonly VerificationKey[] {
    return [...(this.configured?.known() ?? []), ...this.set.known()];
  }
}
