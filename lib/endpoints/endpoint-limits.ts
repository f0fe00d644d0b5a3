import { CallRate } from '../clock/call-rate.js';
import type { WebhookClock } from '../clock/webhook-clock.js';
import { WebhookDeliveryError } from '../errors/webhook.error.js';
import { filled, object, optional, type Read, whole } from '../options/rules.js';
import { RATE, type ResolvedEndpointSettings } from '../sending/endpoint.js';
import type { EndpointStore, SealedEndpointKey, StoredEndpointSettings } from './endpoint-store.js';

/** Limits of managed endpoints and of redelivery, so that the calls of a tenant cannot multiply work. */
export interface EndpointLimits {
  /** Endpoints of one tenant, disabled ones included; default 100. Endpoints without a tenant are not limited. */
  readonly perTenant?: number | undefined;
  /** Keys of one endpoint: the one that signs, and those that rotations have added since; default 4. */
  readonly keys?: number | undefined;
  /** Test events of one endpoint in a minute, counted by each process; default 20. */
  readonly testsPerMinute?: number | undefined;
  /**
   * Deliveries that `redeliver` sends again in a minute with a tenant in its options, for each tenant and counted by each process;
   * default 1,000. Calls without a tenant are not limited.
   */
  readonly redeliveriesPerMinute?: number | undefined;
  /** The highest `concurrency` of an endpoint, and that of one without; default: none. */
  readonly concurrency?: number | undefined;
  /** The highest `rateLimit.perSecond` of an endpoint, and that of one without; default: none. */
  readonly perSecond?: number | undefined;
}

export const ENDPOINT_LIMITS = filled(
  object<EndpointLimits>()({
    perTenant: optional(whole(1), 100),
    // A rotation with an overlap needs two.
    keys: optional(whole(2), 4),
    testsPerMinute: optional(whole(1), 20),
    redeliveriesPerMinute: optional(whole(1), 1_000),
    concurrency: optional(whole(1, 1_000)),
    perSecond: optional(RATE),
  }),
);

export type ResolvedEndpointLimits = Read<typeof ENDPOINT_LIMITS>;

/** Refuses what exceeds a limit with {@link WebhookDeliveryError} `limit_reached`. */
export class LimitChecks {
  private readonly tests: CallRate;
  /** The last addition of each tenant that is under way. */
  private readonly additions = new Map<string, Promise<void>>();

  constructor(
    private readonly limits: ResolvedEndpointLimits,
    private readonly store: EndpointStore,
    clock: WebhookClock,
  ) {
    this.tests = new CallRate(clock);
  }

  /**
   * Adds an endpoint if the tenant has space for it. This process adds those of a tenant one at a time: all concurrent calls for the
   * last space would find it, and then find the limit exceeded.
   */
  async addWithin(tenant: string | undefined, add: () => Promise<void>): Promise<void> {
    if (tenant === undefined) return add();
    const before = this.additions.get(tenant);
    const addition = (async () => {
      await before?.catch(() => {});
      await this.requireSpace(tenant, 1);
      await add();
    })();
    this.additions.set(tenant, addition);
    try {
      await addition;
    } finally {
      if (this.additions.get(tenant) === addition) this.additions.delete(tenant);
    }
  }

  /** @param more - endpoints that are to be added */
  async requireSpace(tenant: string | undefined, more: number): Promise<void> {
    if (tenant === undefined) return;
    const { perTenant } = this.limits;
    if ((await this.store.count(tenant)) + more <= perTenant) return;
    throw limitReached(
      `The tenant has ${perTenant} endpoints, which is the limit: delete one, or raise endpointLimits.perTenant.`,
    );
  }

  requireFewKeys(keys: readonly SealedEndpointKey[]): void {
    const most = this.limits.keys;
    if (keys.length <= most) return;
    const next = new Date(keys[1]!.notBefore).toISOString();
    throw limitReached(
      `The endpoint has ${most} keys that sign now or later, which is the limit: rotate again after ${next}, when the oldest one is retired; with overlap 0, which replaces all of them at once; or raise endpointLimits.keys.`,
    );
  }

  /** Checks that settings stay within the limits of the operator. */
  requireWithin({ concurrency = 0, rateLimit }: StoredEndpointSettings): void {
    const { limits } = this;
    for (const [name, value, most] of [
      ['concurrency', concurrency, limits.concurrency],
      ['rateLimit.perSecond', rateLimit?.perSecond ?? 0, limits.perSecond],
    ] as const) {
      if (most === undefined || value <= most) continue;
      const option = name.replace('rateLimit.', '');
      throw limitReached(
        `${name} is ${value}, and an endpoint may have ${most} at most: set a lower one, or raise endpointLimits.${option}.`,
      );
    }
  }

  requireTestRate(id: string): void {
    const { testsPerMinute } = this.limits;
    const wait = this.tests.waitAfter(id, testsPerMinute);
    if (wait === undefined) return;
    throw limitReached(
      `The endpoint was tested ${testsPerMinute} times in a minute, which is the limit: test it again in ${wait} s, or raise endpointLimits.testsPerMinute.`,
    );
  }
}

export function limitReached(message: string): WebhookDeliveryError {
  return new WebhookDeliveryError('limit_reached', message);
}

/** The limits of an endpoint that apply: the maxima of the operator also bound what was stored before they were set. */
export function withinLimits(
  { concurrency = Infinity, rateLimit }: ResolvedEndpointSettings,
  most: ResolvedEndpointLimits,
): Pick<ResolvedEndpointSettings, 'concurrency' | 'rateLimit'> {
  const atOnce = Math.min(concurrency, most.concurrency ?? Infinity);
  const perSecond = Math.min(rateLimit?.perSecond ?? Infinity, most.perSecond ?? Infinity);
  return {
    concurrency: atOnce === Infinity ? undefined : atOnce,
    rateLimit: perSecond === Infinity ? undefined : { perSecond, burst: rateLimit?.burst },
  };
}
