import type { WebhookClock } from '../clock/webhook-clock.js';
import type { Duration } from '../clock/duration.js';
import { WebhookDeliveryError } from '../errors/webhook.error.js';
import { isIdentifier } from '../token/identifier.js';
import type { WebhookQueue } from '../queue/webhook-queue.js';
import type {
  DeliveryFilter,
  DeliveryLog,
  DeliveryPageRequest,
  LoggedDelivery,
} from './delivery-log.js';
import {
  cursorOf,
  readCursor,
  readDryRun,
  readFilter,
  readLimit,
  readOlderThan,
  readRedeliveryFilter,
  readScope,
} from './delivery-query.js';
import { attemptViewOf, statsOf, traceIdOf, viewOf } from './delivery-view.js';
import type { DeliveryLogWriter } from './delivery-log.writer.js';
import { Redelivery } from './redelivery.js';
import type {
  DeliveryPageOptions,
  RedeliveredDelivery,
  RedeliverOptions,
  RedeliverResult,
  WebhookDeliveryDetails,
  WebhookDeliveryFilter,
  WebhookDeliveryPage,
  WebhookDeliveryPayload,
  WebhookDeliveryScope,
  WebhookDeliveryStats,
} from './webhook-deliveries.interface.js';

const DEFAULT_PAGE = 50;
const MAX_PAGE = 500;
const DEFAULT_REDELIVERIES = 1_000;
const MAX_REDELIVERIES = 10_000;

/**
 * Lists deliveries with their attempts, and sends them again.
 *
 * It reads the publisher's `deliveryLog`; with `deliveryLog: false` every method throws {@link WebhookDeliveryError}
 * `unsupported_option`. Errors of the log and the queue, mostly {@link WebhookStoreError}, are passed on.
 */
export class WebhookDeliveries {
  /** @internal Its parameters need the types of axios, which an application that only receives does not have. */
  constructor(
    private readonly log: DeliveryLog | undefined,
    private readonly queue: WebhookQueue,
    private readonly logWriter: DeliveryLogWriter,
    private readonly clock: WebhookClock,
  ) {}

  /**
   * Lists deliveries page by page, newest first.
   *
   * @throws {@link WebhookDeliveryError} `invalid_option`
   */
  async list(
    filter: WebhookDeliveryFilter = {},
    options: DeliveryPageOptions = {},
  ): Promise<WebhookDeliveryPage> {
    const wanted = readFilter(filter, readScope(options, 'options', ['after', 'limit']));
    const limit = readLimit(options.limit, DEFAULT_PAGE, MAX_PAGE);
    const after = readCursor(options.after);
    const log = await this.readyLog();
    const found = await log.list(wanted, { limit: limit + 1, ...(after && { after }) });
    const page = found.slice(0, limit);
    return {
      deliveries: page.map(viewOf),
      ...(found.length > limit && { next: cursorOf(page.at(-1)!.delivery) }),
    };
  }

  /**
   * Returns a delivery with its attempts.
   *
   * @returns `undefined` if the id is unknown, or belongs to another tenant
   * @throws {@link WebhookDeliveryError} `invalid_option`
   */
  async get(id: string, scope?: WebhookDeliveryScope): Promise<WebhookDeliveryDetails | undefined> {
    const logged = await this.find(id, readScope(scope, 'scope'));
    if (logged === undefined) return undefined;
    const attempts = await (await this.readyLog()).attempts(id);
    const traceId = traceIdOf(logged.delivery);
    return {
      ...viewOf(logged),
      attempts: attempts.map(attemptViewOf),
      ...(traceId !== undefined && { traceId }),
    };
  }

  /**
   * Returns the payload of a delivery's event. It is meant for the receiver; check who may see it.
   *
   * @returns a copy; `undefined` if the id is unknown, or belongs to another tenant
   * @throws {@link WebhookDeliveryError} `invalid_option`
   */
  async payload(
    id: string,
    scope?: WebhookDeliveryScope,
  ): Promise<WebhookDeliveryPayload | undefined> {
    const payload = (await this.find(id, readScope(scope, 'scope')))?.delivery.payload;
    return (
      payload && {
        contentType: payload.contentType,
        bytes: Buffer.from(payload.bytes ?? []),
      }
    );
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
   *   `{ since: new Date(0) }` for everything
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
    const tenant = readScope(options, 'options', ['dryRun', 'limit']);
    const dryRun = readDryRun(options.dryRun);
    const limit = readLimit(options.limit, DEFAULT_REDELIVERIES, MAX_REDELIVERIES);
    if (typeof idOrFilter === 'string') {
      const logged = await this.find(idOrFilter, tenant);
      if (logged === undefined) throw unknownDelivery();
      const redelivered = await this.redeliverAll([logged], { dryRun, isNamed: true });
      return { deliveries: redelivered, more: false };
    }
    const filter = readRedeliveryFilter(idOrFilter, tenant);
    for (let after: DeliveryPageRequest['after']; ;) {
      const found = await this.collect(filter, limit + 1, after);
      const page = found.slice(0, limit);
      const deliveries = await this.redeliverAll(page, { dryRun, isNamed: false });
      const more = found.length > limit;
      // Skip these, or a redeliver-until-empty loop never ends: what was sent again as another delivery stays dead.
      if (!more || deliveries.some(({ reason }) => reason === undefined)) {
        return { deliveries, more };
      }
      after = page.at(-1)!.delivery;
    }
  }

  /**
   * Counts deliveries by state, and returns by how much they are overdue.
   *
   * @param filter - its `status` is ignored
   * @throws {@link WebhookDeliveryError} `invalid_option`
   */
  async stats(
    filter: WebhookDeliveryFilter = {},
    scope?: WebhookDeliveryScope,
  ): Promise<WebhookDeliveryStats> {
    const wanted = readFilter(filter, readScope(scope, 'scope'));
    const log = await this.readyLog();
    return statsOf(await log.counts(wanted), this.clock.now());
  }

  /**
   * Deletes delivered and dead deliveries with their attempts.
   *
   * @param options - `olderThan`: recorded before this Date, or longer ago than this duration, such as `'30d'`
   * @returns the number of deleted deliveries
   * @throws {@link WebhookDeliveryError} `invalid_option`
   */
  async prune(
    options: { readonly olderThan: Duration | Date } & WebhookDeliveryScope,
  ): Promise<number> {
    const tenant = readScope(options, 'options', ['olderThan']);
    const before = readOlderThan(options?.olderThan, this.clock.now());
    const log = await this.readyLog();
    return log.prune(before, tenant === undefined ? {} : { tenant });
  }

  private async find(id: string, tenant: string | undefined): Promise<LoggedDelivery | undefined> {
    const log = await this.readyLog();
    // A database may refuse a value that cannot be an id, such as one with NUL.
    const logged = isIdentifier(id) ? await log.find(id) : undefined;
    const isOfOtherTenant = tenant !== undefined && logged?.delivery.tenant !== tenant;
    return isOfOtherTenant ? undefined : logged;
  }

  private async collect(
    filter: DeliveryFilter,
    limit: number,
    after: DeliveryPageRequest['after'],
  ): Promise<readonly LoggedDelivery[]> {
    const log = await this.readyLog();
    const found: LoggedDelivery[] = [];
    for (;;) {
      const start = found.at(-1)?.delivery ?? after;
      const size = Math.min(MAX_PAGE, limit - found.length);
      const page = await log.list(filter, { limit: size, ...(start && { after: start }) });
      found.push(...page);
      if (page.length < size || found.length === limit) return found;
    }
  }

  /** Oldest first, one after another, as they were first sent; the results are in the order of the list. */
  private async redeliverAll(
    found: readonly LoggedDelivery[],
    choice: { readonly dryRun: boolean; readonly isNamed: boolean },
  ): Promise<readonly RedeliveredDelivery[]> {
    const redelivery = new Redelivery(
      await this.readyLog(),
      this.queue,
      this.logWriter,
      this.clock,
    );
    const results: RedeliveredDelivery[] = [];
    for (const logged of found.toReversed())
      results.push(await redelivery.redeliver(logged, choice));
    return results.toReversed();
  }

  /** The log, once it holds every change of this process so far. */
  private async readyLog(): Promise<DeliveryLog> {
    if (this.log === undefined) {
      throw new WebhookDeliveryError(
        'unsupported_option',
        'There is no delivery log: deliveryLog is false. Leave the option out, or set it to a DeliveryLog.',
      );
    }
    await this.logWriter.flushed();
    return this.log;
  }
}

function unknownDelivery(): WebhookDeliveryError {
  return new WebhookDeliveryError(
    'unknown_delivery',
    'The delivery log has no delivery with this id: it was pruned, or the id is wrong.',
  );
}
