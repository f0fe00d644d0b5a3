import { CallRate } from '../clock/call-rate.js';
import type { WebhookClock } from '../clock/webhook-clock.js';
import { limitReached } from '../endpoints/endpoint-limits.js';
import { WebhookDeliveryError } from '../errors/webhook.error.js';
import { isIdentifier } from '../token/identifier.js';
import { readArgument } from '../options/read-options.js';
import { cursorOf, eachDelivery } from '../queue/delivery-list.js';
import type {
  DeliveryCounts,
  DeliveryFilter,
  DeliveryPageRequest,
  WebhookQueue,
} from '../queue/webhook-queue.js';
import type { DeliveryRecord, OutgoingDelivery } from '../queue/webhook-delivery.js';
import {
  ERASURE,
  type ErasureFilter,
  PAGE,
  PRUNING,
  readFilter,
  readRedeliveryFilter,
  readScope,
  readStatsFilter,
  REDELIVERY,
  type DeliveryPageOptions,
  type PruneOptions,
  type RedeliverOptions,
  type WebhookDeliveryFilter,
  type WebhookDeliveryScope,
  type WebhookDeliveryStatsFilter,
} from './delivery-query.js';
import {
  attemptViewOf,
  type ErasureResult,
  statsOf,
  traceIdOf,
  viewOf,
  type WebhookDeliveryDetails,
  type WebhookDeliveryPage,
  type WebhookDeliveryPayload,
  type WebhookDeliveryStats,
} from './delivery-view.js';
import {
  isOutgoing,
  type ListedOutgoing,
  Redelivery,
  type RedeliveredDelivery,
  type RedeliveryOptions,
  type RedeliverResult,
} from './redelivery.js';

/** Deliveries that are collected at once. */
const MAX_PAGE = 500;

/**
 * Lists deliveries with their attempts, and sends them again.
 *
 * Errors of the queue, mostly {@link WebhookStoreError}, are passed on.
 */
export class WebhookDeliveries {
  private readonly redelivery: Redelivery;
  private readonly rate: CallRate;

  /**
   * @internal Created by the module.
   *
   * @param perMinute - deliveries that a tenant may send again
   */
  constructor(
    private readonly queue: WebhookQueue,
    private readonly clock: WebhookClock,
    private readonly perMinute = Infinity,
  ) {
    this.rate = new CallRate(clock);
    this.redelivery = new Redelivery(queue, clock);
  }

  /**
   * Lists deliveries page by page, newest first.
   *
   * @throws {@link WebhookDeliveryError} `invalid_option`
   */
  async list(
    filter: WebhookDeliveryFilter = {},
    options: DeliveryPageOptions = {},
  ): Promise<WebhookDeliveryPage> {
    const { tenant, after, limit } = readArgument(PAGE, options, 'options');
    const found = await this.queue.list(readFilter(filter, tenant), { limit: limit + 1, after });
    const page = found.slice(0, limit);
    const now = this.clock.now();
    return {
      deliveries: page.filter(isOutgoing).map((listed) => viewOf(listed, now)),
      next: found.length > limit ? cursorOf(page.at(-1)!.delivery) : undefined,
    };
  }

  /**
   * Returns a delivery with its attempts.
   *
   * @returns `undefined` if the id is unknown, or belongs to another tenant
   * @throws {@link WebhookDeliveryError} `invalid_option`
   */
  async get(id: string, scope?: WebhookDeliveryScope): Promise<WebhookDeliveryDetails | undefined> {
    const record = await this.find(id, readScope(scope));
    if (record === undefined) return undefined;
    const attempts = await this.queue.attempts(id);
    const traceId = traceIdOf(record.delivery);
    const view = viewOf(record, this.clock.now());
    return { ...view, attempts: attempts.map((one) => attemptViewOf(one, record)), traceId };
  }

  /**
   * Returns the payload of a delivery's event. It is meant for the receiver; check who may see it.
   *
   * @returns a copy; `undefined` if the id is unknown, or belongs to another tenant, or if the queue has dropped the payload
   * @throws {@link WebhookDeliveryError} `invalid_option`
   */
  async payload(
    id: string,
    scope?: WebhookDeliveryScope,
  ): Promise<WebhookDeliveryPayload | undefined> {
    const record = await this.find(id, readScope(scope));
    if (record === undefined || record.payloadDropped === true) return undefined;
    const { contentType, bytes = [] } = record.delivery.payload;
    return { contentType, bytes: Buffer.from(bytes) };
  }

  /**
   * Sends deliveries again.
   *
   * A dead delivery gets a new round of attempts under its id. A delivered one is sent as another delivery of the same event. A
   * pending one, passed by its id, is attempted now instead of at its next time.
   *
   * @param idOrFilter - a delivery's id, or a filter. A filter matches dead deliveries, unless its `status` is `'delivered'`
   * @returns once the queue has recorded them; they are delivered later
   * @throws {@link WebhookDeliveryError} `unknown_delivery`; `invalid_option`, also for an empty filter: pass
   *   `{ since: new Date(0) }` for everything; `limit_reached` if the tenant of the options has sent as many again in this minute
   *   as `endpointLimits.redeliveriesPerMinute` allows
   *
   * @example
   * ```ts
   * await deliveries.redeliver({ endpointId: 'crm', since: yesterday });
   * ```
   */
  async redeliver(
    idOrFilter: string | WebhookDeliveryFilter,
    options: RedeliverOptions = {},
  ): Promise<RedeliverResult> {
    const read = readArgument(REDELIVERY, options, 'options');
    const { tenant, dryRun, unlessDelivered, after, limit } = read;
    if (typeof idOrFilter === 'string') {
      const record = await this.find(idOrFilter, tenant);
      if (record === undefined) throw unknownDelivery();
      const choice = { dryRun, isNamed: true, unlessDelivered };
      return { deliveries: await this.redeliverSome([record], choice, tenant), more: false };
    }
    const filter = readRedeliveryFilter(idOrFilter, tenant);
    let found = await this.collect(filter, limit + 1, after);
    for (let from = 0; ;) {
      const page = found.slice(from, limit);
      const deliveries = await this.redeliverSome(page, { dryRun, isNamed: false }, tenant);
      from += deliveries.length;
      const more = found.length > from;
      // Skip these, or a redeliver-until-empty loop never ends: what was sent again as another delivery stays delivered.
      if (!more || deliveries.some(({ reason }) => reason === undefined)) {
        return { deliveries, more, ...(more && { next: cursorOf(found[from - 1]!.delivery) }) };
      }
      if (from < limit) continue;
      found = await this.collect(filter, limit + 1, page.at(-1)!.delivery);
      from = 0;
    }
  }

  /**
   * Sends a part of the dead deliveries of an endpoint again, the newest part first. Unlike {@link redeliver}, it continues after the
   * last part, so that a delivery that dies again is not sent again for as long as the endpoint fails.
   *
   * @hidden
   */
  async recover(
    filter: WebhookDeliveryFilter & { readonly endpointId: string },
    options: {
      /** Of the endpoint; `undefined`: only deliveries without a tenant. */
      readonly tenant: string | undefined;
      /** `next` of the last part. */
      readonly after: DeliveryPageRequest['after'];
      /** Deliveries of the part. */
      readonly limit: number;
    },
  ): Promise<{
    readonly sent: number;
    /** Deliveries that cannot be sent again. */
    readonly skipped: number;
    readonly next: DeliveryPageRequest['after'];
    readonly isLast: boolean;
    /** Milliseconds until `endpointLimits.redeliveriesPerMinute` allows more. */
    readonly waitMs: number;
  }> {
    const { tenant, after, limit } = options;
    const wanted = readRedeliveryFilter(filter, tenant);
    const found = await this.collect(wanted, limit, after, (one) => one.delivery.tenant === tenant);
    // Of all endpoints of a tenant together; an endpoint without a tenant has a limit of its own.
    const key = tenant ?? `\0${filter.endpointId}`;
    const allowed = this.rate.take(key, found.length, this.perMinute);
    const part = found.slice(0, allowed);
    const results = await this.redeliverAll(part, { dryRun: false, isNamed: false });
    const sent = results.filter(({ redelivered }) => redelivered).length;
    const isLast = found.length < limit && part.length === found.length;
    return {
      sent,
      skipped: part.length - sent,
      next: isLast ? undefined : (placeOf(part.at(-1)) ?? after),
      waitMs: part.length < found.length ? this.rate.waitOf(key) * 1_000 : 0,
      isLast,
    };
  }

  /**
   * Lets the later deliveries of an ordering key continue that wait for a dead one. It stays dead; redelivered later, it is sent out
   * of order, with its old `sequence`.
   *
   * @returns whether the delivery blocked its key
   * @throws {@link WebhookDeliveryError} `unknown_delivery`, `invalid_option`
   */
  async skip(id: string, scope?: WebhookDeliveryScope): Promise<boolean> {
    const record = await this.find(id, readScope(scope));
    if (record === undefined) throw unknownDelivery();
    return (await this.queue.skip([id])).length > 0;
  }

  /**
   * Counts deliveries by state, and returns by how much they are overdue.
   *
   * @throws {@link WebhookDeliveryError} `invalid_option`
   */
  async stats(
    filter: WebhookDeliveryStatsFilter = {},
    scope?: WebhookDeliveryScope,
  ): Promise<WebhookDeliveryStats> {
    const wanted = readStatsFilter(filter, readScope(scope));
    return statsOf(await this.queue.counts(wanted), this.clock.now());
  }

  /**
   * Counts deliveries by state in steps of the time at which they were recorded, by endpoint and tenant.
   *
   * @param filter - with `since` and `until`
   * @param step - milliseconds
   * @throws {@link WebhookDeliveryError} `invalid_option`
   * @hidden
   */
  async countsByStep(
    filter: WebhookDeliveryStatsFilter & { readonly since: Date; readonly until: Date },
    step: number,
    scope?: WebhookDeliveryScope,
  ): Promise<readonly DeliveryCounts[]> {
    const wanted = readStatsFilter(filter, readScope(scope));
    const counts = await this.queue.counts({ ...wanted, step });
    return counts.filter(({ receiver }) => receiver === undefined);
  }

  /**
   * Deletes delivered and dead deliveries with their attempts.
   *
   * @returns the number of deleted deliveries
   * @throws {@link WebhookDeliveryError} `invalid_option`
   */
  async prune(options: PruneOptions): Promise<number> {
    const { tenant, olderThan } = readArgument(PRUNING, options, 'options');
    const before = olderThan instanceof Date ? olderThan.getTime() : this.clock.now() - olderThan;
    return this.queue.prune(before, { tenant });
  }

  /**
   * Deletes everything that is stored about deliveries, in any state: pending ones are not sent any more. Their ids are unknown
   * then. Deliveries that are being attempted stay; `isComplete` is `false` then, and a later call deletes them.
   *
   * @throws {@link WebhookDeliveryError} `invalid_option`
   *
   * @example
   * ```ts
   * const { erased, isComplete } = await deliveries.erase({ tenant: 'acme' });
   * ```
   */
  async erase(filter: ErasureFilter): Promise<ErasureResult> {
    const wanted = readArgument(ERASURE, filter, 'filter');
    const erased = await this.queue.erase(wanted);
    const left = await this.queue.list(wanted, { limit: 1 });
    return { erased, isComplete: left.length === 0 };
  }

  private async find(
    id: string,
    tenant: string | undefined,
  ): Promise<DeliveryRecord<OutgoingDelivery> | undefined> {
    // A database may refuse a value that cannot be an id, such as one with NUL.
    const [record] = isIdentifier(id) ? await this.queue.find([id]) : [];
    if (record === undefined || record.delivery.received !== undefined) return undefined;
    const { delivery } = record;
    return tenant === undefined || delivery.tenant === tenant ? { ...record, delivery } : undefined;
  }

  /**
   * Sends the first of these deliveries again, as many as a tenant may send now; only what is sent counts.
   *
   * @throws {@link WebhookDeliveryError} `limit_reached` if it may send none
   */
  private async redeliverSome(
    found: readonly ListedOutgoing[],
    choice: RedeliveryOptions,
    tenant: string | undefined,
  ): Promise<readonly RedeliveredDelivery[]> {
    if (tenant === undefined || choice.dryRun || found.length === 0) {
      return this.redeliverAll(found, choice);
    }
    const takenAt = this.clock.now();
    const allowed = this.rate.take(tenant, found.length, this.perMinute);
    if (allowed <= 0) {
      throw limitReached(
        `The tenant has sent ${this.perMinute} deliveries again in a minute, which is the limit: try again in ${this.rate.waitOf(tenant)} s, or raise endpointLimits.redeliveriesPerMinute.`,
      );
    }
    const results = await this.redeliverAll(found.slice(0, allowed), choice);
    const skipped = results.filter(({ reason }) => reason !== undefined).length;
    this.rate.giveBack(tenant, skipped, takenAt);
    return results;
  }

  private async collect(
    filter: DeliveryFilter,
    limit: number,
    after?: DeliveryPageRequest['after'],
    accepts: (one: ListedOutgoing) => boolean = () => true,
  ): Promise<readonly ListedOutgoing[]> {
    const found: ListedOutgoing[] = [];
    for await (const one of eachDelivery(this.queue, filter, Math.min(MAX_PAGE, limit), after)) {
      if (isOutgoing(one) && accepts(one)) found.push(one);
      if (found.length === limit) break;
    }
    return found;
  }

  /** Oldest first, one after another, as they were first sent; the results are in the order of the list. */
  private async redeliverAll(
    found: readonly ListedOutgoing[],
    choice: RedeliveryOptions,
  ): Promise<readonly RedeliveredDelivery[]> {
    const results: RedeliveredDelivery[] = [];
    for (const listed of found.toReversed()) {
      results.push(await this.redelivery.redeliver(listed, choice));
    }
    return results.toReversed();
  }
}

function placeOf(listed: ListedOutgoing | undefined): DeliveryPageRequest['after'] {
  return listed && { createdAt: listed.delivery.createdAt, id: listed.delivery.id };
}

function unknownDelivery(): WebhookDeliveryError {
  return new WebhookDeliveryError(
    'unknown_delivery',
    'The queue has no delivery with this id: it was pruned, or the id is wrong.',
  );
}
