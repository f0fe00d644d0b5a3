import { type CancelWake, repeat } from '../clock/webhook-clock.js';
import type { DeliveryHandler } from '../queue/webhook-queue.js';
import type { DeliveryLimits, DeliveryRun, WebhookDelivery } from '../queue/webhook-delivery.js';
import { ClaimLoop } from './claim-loop.js';
import { databaseFailure } from './database-failure.js';
import type { DeliveryLimitTable } from './delivery-limit-table.js';
import { type ClaimedDelivery, type OutcomeRow, outcomeRow, releasedRow } from './delivery-row.js';
import type { DeliveryTable } from './delivery-table.js';
import type { KeyTurns } from './key-turns.js';
import { LimitedLanes } from './limited-lanes.js';
import { OutcomeWriter } from './outcome-writer.js';
import type { QueueConnection } from './queue-connection.js';
import { QueueNotifications } from './queue-notifications.js';
import type { QueueUpkeep } from './queue-upkeep.js';

interface DeliveryConsumerParts {
  readonly connection: QueueConnection;
  readonly table: DeliveryTable;
  readonly keys: KeyTurns;
  readonly limits: DeliveryLimitTable;
  readonly upkeep: QueueUpkeep;
  readonly handler: DeliveryHandler;
}

/** Attempts the due deliveries of a queue, and keeps it in order. It starts when it is constructed. */
export class DeliveryConsumer {
  readonly loop: ClaimLoop;
  private readonly outcomes: OutcomeWriter;
  private readonly notifications: QueueNotifications | undefined;
  private readonly timers: readonly CancelWake[];
  /** Deliveries whose handlers run, by key of their rows. */
  private readonly handling = new Map<string, ClaimedDelivery>();
  private readonly warnOfDamage = once(warnOfDamage);

  constructor(private readonly parts: DeliveryConsumerParts) {
    const { connection, table, keys, limits, upkeep } = parts;
    const { options, server } = connection;
    const { clock, lease, notify } = options;
    this.outcomes = new OutcomeWriter({
      record: async (outcomes) => this.recordAndContinue(outcomes),
      onGivenUp: warnOnce(
        server,
        'The outcome of an attempt was not recorded, and its delivery runs again',
      ),
      clock,
      lease,
    });
    this.loop = new ClaimLoop({
      ...options,
      claimDeliveries: async (request) => table.claimDeliveries(request),
      findDueLanes: async (lanes) => table.findDueLanes(lanes),
      limited: new LimitedLanes(limits, options),
      run: async (delivery) => this.attempt(delivery),
      release: async (delivery) => this.outcomes.write(releasedRow(delivery), clock.now()),
      onOutage: (error) => warnOfOutage(error, server, 'Deliveries wait'),
      onLimitedFailure: (error) =>
        warnOfOutage(error, server, 'Deliveries to endpoints with limits wait'),
    });
    this.timers = [
      keys.search(() => this.loop.wake()),
      upkeep.start(warnOnce(server, 'Counts are not merged, or old deliveries not deleted')),
      // Not awaited: a renewal that hangs must not delay the next one.
      repeat(clock, lease / 3, async () => void this.renewLeases().catch(() => {})),
    ];
    this.loop.wake();
    if (notify) this.notifications = this.subscribe();
  }

  /** Attempts deliveries until none is due or running. */
  async drain(): Promise<void> {
    await this.parts.keys.releaseAll();
    await this.loop.drain();
  }

  /** Ends everything; the leases of running deliveries expire. */
  async end(): Promise<void> {
    for (const cancel of this.timers) cancel();
    await Promise.all([this.outcomes.close(), this.notifications?.stop()]);
  }

  private subscribe(): QueueNotifications {
    const { connection } = this.parts;
    const { channel, name, clock, server } = connection;
    const notifications = new QueueNotifications({
      listen: async (receive, onLost) => (await connection.open()).listen(channel, receive, onLost),
      notify: async (payload) =>
        connection.query('SELECT pg_notify($1::text, $2::text)', [channel, payload]),
      name,
      onNotification: () => this.loop.wake('all'),
      onUnsupported: () => warnOfUnsupportedNotify(server),
      clock,
    });
    notifications.start();
    return notifications;
  }

  private async attempt(given: ClaimedDelivery): Promise<boolean> {
    const { handler, connection } = this.parts;
    const { clock } = connection;
    const { seq, claim } = given;
    const before = this.handling.get(seq);
    // Its lease was lost, but the process that runs it has not died: that run must not count.
    const claimed = before?.claim === claim - 1 ? { ...given, attempts: before.attempts } : given;
    this.handling.set(seq, claimed);
    let run: DeliveryRun | undefined;
    try {
      run = await handler(this.deliveryOf(claimed), claimed.attempts + 1);
    } catch {
      // Logged already; the delivery runs again.
    } finally {
      if (this.handling.get(seq) === claimed) this.handling.delete(seq);
    }
    const now = clock.now();
    const row = outcomeRow(claimed, run, now);
    if (run?.limits !== undefined) await this.updateLimits(claimed, run.limits);
    await this.outcomes.write(row, now);
    // It is due again already.
    if (row.due !== undefined && row.due <= clock.now()) {
      this.loop.wake(claimed.slot === undefined ? [] : [claimed.lane]);
    }
    return run?.attempt !== undefined;
  }

  private deliveryOf({ id, read }: ClaimedDelivery): WebhookDelivery {
    try {
      return read();
    } catch (error) {
      this.warnOfDamage(id, this.parts.connection.server);
      throw error;
    }
  }

  /** If it fails, the next run of the endpoint makes up for it. */
  private async updateLimits(claimed: ClaimedDelivery, limits: DeliveryLimits): Promise<void> {
    const changed = await this.parts.limits.update(claimed, limits).catch(() => false);
    if (changed) this.loop.wake([claimed.lane]);
  }

  /** If it fails, the next of the three renewals per lease makes up for it. */
  private async renewLeases(): Promise<void> {
    const { running } = this.loop;
    if (running.length > 0) await this.parts.table.extend(running);
  }

  /** Records outcomes, then lets others start: the next ones of their keys, and those that wait for a slot of a limited lane. */
  private async recordAndContinue(outcomes: readonly OutcomeRow[]): Promise<void> {
    const { table, keys, limits } = this.parts;
    const released = await table.recordOutcomes(outcomes);
    const limited = outcomes.filter(({ slot }) => slot !== undefined);
    if (released.length > 0 && (await keys.releaseNext(released))) {
      this.loop.wake(limited.map(({ lane }) => lane));
    }
    if (limited.length > 0) await limits.end(limited);
  }
}

function warnOfOutage(error: unknown, server: string, effect: string): void {
  const code = 'WEBHOOK_QUEUE_UNAVAILABLE';
  warn(code, error, server, `${effect}; the queue tries again every few seconds.`);
}

/** Warns of the first error that is no outage. */
function warnOnce(server: string, effect: string): (error: unknown) => void {
  return once((error) =>
    warn('WEBHOOK_QUEUE_ERROR', error, server, `${effect}; the queue tries again.`),
  );
}

/** A function that acts only when it is first called. */
function once<Args extends readonly unknown[]>(
  act: (...args: Args) => void,
): (...args: Args) => void {
  let isDone = false;
  return (...args) => {
    if (isDone) return;
    isDone = true;
    act(...args);
  };
}

function warn(code: string, error: unknown, server: string, effect: string): void {
  const { message } = databaseFailure('The delivery queue', error, server);
  process.emitWarning(`${message} ${effect}`, { code });
}

function warnOfDamage(id: string, server: string): void {
  process.emitWarning(
    `The delivery ${id} in ${server} cannot be read, and waits: other software has changed its row, or a newer version has written ` +
      'it. Restore or delete the row, or update this process.',
    { code: 'WEBHOOK_QUEUE_ERROR' },
  );
}

function warnOfUnsupportedNotify(server: string): void {
  process.emitWarning(
    `The delivery queue receives no notifications from ${server}, which is probably behind a transaction pooler; it polls ` +
      'instead. Set notify: false, or connect to PostgreSQL directly or in session mode.',
    { code: 'WEBHOOK_QUEUE_NOTIFY_UNSUPPORTED' },
  );
}
