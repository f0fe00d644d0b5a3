import { Pause } from '../clock/pause.js';
import type { DeliveryLimits, DeliveryMethod } from '../queue/webhook-delivery.js';
import type { EndpointSigner } from '../signing/endpoint-signer.js';
import type { StandardWebhooksSigner } from '../signing/standard-webhooks-signer.js';
import type { HashAlgorithm, SentProfile } from '../token/webhook-token.constants.js';
import { EndpointCircuit } from './endpoint-circuit.js';
import type { EndpointCredentials } from './endpoint-credentials.js';
import type { EndpointRateLimit } from './endpoint-settings.js';
import type { RetryPolicy } from './retry-policy.js';

/** Where a delivery is sent, with everything that an attempt needs: an endpoint, or a URL that the caller passed. */
export interface Endpoint extends ResolvedEndpointSettings {
  /** Absent for a URL that the caller passed. */
  readonly endpointId?: string;
  /** The tenant whose events the endpoint gets; absent for events without a tenant. */
  readonly tenant?: string;
  readonly url: string;
  /** For logs: the endpoint's id or the URL's origin, never its path or query, which may hold credentials. */
  readonly label: string;
  readonly state: EndpointState;
  /**
   * When it was created, or last enabled, resumed or given another URL, in epoch milliseconds; absent if it is not managed.
   */
  readonly enabledAt?: number | undefined;
  /**
   * Returns the same object on every call; absent if it requires none. A function, so that no log shows them.
   *
   * @throws {@link WebhookStoreError} `sealed_secret_unreadable`
   */
  readonly credentials?: (() => EndpointCredentials) | undefined;
}

/** Settings of an endpoint, checked and filled; durations in milliseconds. */
export interface ResolvedEndpointSettings {
  readonly signer: EndpointSigner;
  /** If absent, the default of the wire format. */
  readonly hash?: HashAlgorithm | undefined;
  readonly profile: SentProfile;
  /** Absent if it has no secret of Standard Webhooks. */
  readonly standardWebhooks?: StandardWebhooksSigner | undefined;
  readonly envelope: boolean;
  readonly method: DeliveryMethod;
  readonly timeout: number;
  readonly headers: Readonly<Record<string, string>>;
  readonly audience?: string | readonly string[] | undefined;
  readonly subject?: string | undefined;
  readonly jti: 'attempt' | 'delivery';
  readonly onDead: 'skip' | 'block';
  readonly retry: RetryPolicy;
  readonly concurrency?: number | undefined;
  readonly rateLimit?: EndpointRateLimit | undefined;
}

/** The limits of an endpoint in the form that queues take; without a limit, `concurrency` and `perSecond` are absent. */
export function limitsOf({ concurrency, rateLimit, enabledAt }: Endpoint): DeliveryLimits {
  if (rateLimit === undefined) return { concurrency, since: enabledAt };
  const { perSecond, burst = Math.ceil(perSecond) } = rateLimit;
  return { concurrency, perSecond, burst, since: enabledAt };
}

/** Why an endpoint is disabled. */
export type EndpointDisabledReason =
  /** By `WebhookEndpoints.disable`. */
  | 'requested'
  /** It answered 410. */
  | 'gone'
  /** It failed every attempt for too long. */
  | 'failing';

/** Since when an endpoint is disabled (epoch milliseconds), and why. */
export interface EndpointDisabled {
  readonly at: number;
  readonly reason: EndpointDisabledReason;
}

/** The format of acknowledged requests; times in epoch milliseconds. */
interface AcknowledgedFormat {
  readonly profile: SentProfile;
  /** Of the first request that was acknowledged in this format, with no other format after it. */
  readonly since: number;
  /** Of the last one. */
  readonly at: number;
}

/**
 * What this process has learnt about an endpoint. It is kept in memory only: after a restart it is learnt again, at the cost of
 * one request.
 */
export class EndpointState {
  /** Deliveries wait until it ends: the receiver has asked to wait, or its answers time out. */
  overload = new Pause();

  /** Since when the application has paused it in this process, in epoch milliseconds. */
  pausedAt: number | undefined;

  /** Opens while the endpoint keeps failing. */
  circuit = new EndpointCircuit();

  /** A HEAD was inconclusive and the POST after it was acknowledged, so HEAD is not tried again. */
  needsPost = false;

  /** How the last acknowledged request was signed. */
  acknowledged: AcknowledgedFormat | undefined;

  constructor(
    /** Set once this process sends nothing more. */
    public disabled?: EndpointDisabled,
  ) {}

  /** @param at - epoch milliseconds */
  noteAcknowledged(profile: SentProfile, at: number): void {
    const before = this.acknowledged;
    const isSame = JSON.stringify(before?.profile) === JSON.stringify(profile);
    this.acknowledged = { profile, since: isSame ? before!.since : at, at };
  }

  /** Discards what its answers have taught, when the endpoint is enabled or resumed. */
  forget(): void {
    this.overload = new Pause();
    this.circuit = new EndpointCircuit();
    this.needsPost = false;
  }
}
