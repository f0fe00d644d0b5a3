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
import { attemptViewOf, statsOf, viewOf } from './delivery-view.js';
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
 * Shows what became of deliveries, and sends them again.
 *
 * It reads the publisher's `deliveryLog`; with `deliveryLog: false` every method throws {@link WebhookDeliveryError}
 * `unsupported_option`. What a log or a queue throws, mostly {@link WebhookStoreError}, is passed on.
 */
export class WebhookDeliveries {
  constructor(
    private readonly log: DeliveryLog | undefined,
    private readonly queue: WebhookQueue,
    private readonly logWriter: DeliveryLogWriter,
    private readonly clock: WebhookClock,
  ) {}

  /**
   * Lists deliveries, the newest first.
   *
   * @returns at most `limit` of them, and where the rest begins
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
   * Shows a delivery with its attempts.
   *
   * @returns `undefined` for an id that the log does not know, or that is another tenant's
   * @throws {@link WebhookDeliveryError} `invalid_option`
   */
  async get(id: string, scope?: WebhookDeliveryScope): Promise<WebhookDeliveryDetails | undefined> {
    const logged = await this.find(id, readScope(scope, 'scope'));
    if (logged === undefined) return undefined;
    const attempts = await (await this.readyLog()).attempts(id);
    return { ...viewOf(logged), attempts: attempts.map(attemptViewOf) };
  }

  /**
   * Gives the body of a delivery's event: what it carries is for the eyes of its receiver.
   *
   * @returns a copy; `undefined` for an id that the log does not know, or that is another tenant's
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
   * Sends deliveries again: a dead one from its first attempt on, under its old id; a delivered one as another delivery of the
   * same event. What is on its way is left alone.
   *
   * @param idOrFilter - a delivery's id; or which ones: dead ones, unless its `status` says `'delivered'`
   * @returns when they are recorded; not when they are delivered
   * @throws {@link WebhookDeliveryError} `unknown_delivery`; `invalid_option`, also for a filter that asks for nothing: everything
   *   is `{ since: new Date(0) }`
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
      // What was sent again as another delivery stays dead: who asks until there is no more would get the same for ever.
      if (!more || deliveries.some(({ reason }) => reason === undefined)) {
        return { deliveries, more };
      }
      after = page.at(-1)!.delivery;
    }
  }

  /**
   * Counts deliveries, and tells how late they are.
   *
   * @param filter - its `status` is not looked at
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
   * Forgets deliveries that are done, with their attempts; pending ones stay.
   *
   * @param options - `olderThan`: recorded before this time, or longer ago than this: milliseconds, or a text like `'30d'`
   * @returns how many
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
    // What cannot be an id is not looked for: a database may stumble over it.
    const logged = isIdentifier(id) ? await log.find(id) : undefined;
    const isAnothers = tenant !== undefined && logged?.delivery.tenant !== tenant;
    return isAnothers ? undefined : logged;
  }

  private async collect(
    filter: DeliveryFilter,
    limit: number,
    behind: DeliveryPageRequest['after'],
  ): Promise<readonly LoggedDelivery[]> {
    const log = await this.readyLog();
    const found: LoggedDelivery[] = [];
    for (;;) {
      const after = found.at(-1)?.delivery ?? behind;
      const size = Math.min(MAX_PAGE, limit - found.length);
      const page = await log.list(filter, { limit: size, ...(after && { after }) });
      found.push(...page);
      if (page.length < size || found.length === limit) return found;
    }
  }

  /** One after the other, the oldest first, as they would have been sent; told in the order of the list. */
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

  /** The log, once it knows what has happened in this process so far. */
  private async readyLog(): Promise<DeliveryLog> {
    if (this.log === undefined) {
      throw new WebhookDeliveryError(
        'unsupported_option',
        'No deliveries are remembered: deliveryLog is false. Leave it out, or give the publisher a DeliveryLog.',
      );
    }
    await this.logWriter.flushed();
    return this.log;
  }
}

function unknownDelivery(): WebhookDeliveryError {
  return new WebhookDeliveryError(
    'unknown_delivery',
    'The delivery log knows no delivery of this id: it was pruned, or is another one.',
  );
}
