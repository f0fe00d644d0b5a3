import { InProcessQueue } from '../../queue/in-process.queue.js';
import type { DeliveryRecord, DeliveryRun, WebhookDelivery } from '../../queue/webhook-delivery.js';
import {
  type DeliveryHandler,
  type EnqueuedDelivery,
  type EnqueueOptions,
  WebhookQueue,
} from '../../queue/webhook-queue.js';
import { SimulatedClock, type SimulatedProcess } from './simulated-process.js';
import type { Simulation } from './simulation.js';
import type { Transaction } from './transaction.js';

/** Milliseconds after which another process runs a delivery, if the process that has claimed it is killed or stalled. */
const LEASE = 10_000;
/** Milliseconds after which a process records an outcome again, if the server failed. */
const RETRY = 1_000;

export type OutcomeObserver = (delivery: WebhookDelivery, run: DeliveryRun) => void;

/** A durable queue as a server: it survives the processes that use it, which run its deliveries. */
export class QueueServer {
  readonly queue: InProcessQueue;
  private readonly consumers = new Map<SimulatedProcess, DeliveryHandler>();
  private runs = 0;

  constructor(
    readonly simulation: Simulation,
    readonly name: string,
    private readonly observer: OutcomeObserver,
  ) {
    this.queue = new InProcessQueue({ clock: new SimulatedClock(simulation) });
    this.queue.consume((delivery, attempt) => this.run(delivery, attempt));
  }

  addConsumer(process: SimulatedProcess, handler: DeliveryHandler): void {
    this.consumers.set(process, handler);
  }

  removeConsumer(process: SimulatedProcess): void {
    this.consumers.delete(process);
  }

  /** Records deliveries, with a transaction once it commits. */
  async enqueue(
    deliveries: readonly EnqueuedDelivery[],
    transaction: Transaction | undefined,
    check: EnqueueOptions['check'],
  ): Promise<readonly (DeliveryRecord | undefined)[]> {
    if (transaction === undefined) return this.queue.enqueue(deliveries, { check });
    const known = await this.queue.find(deliveries.map(({ delivery }) => delivery.id));
    check?.(known);
    transaction.onCommit(() => void this.queue.enqueue(deliveries));
    return known;
  }

  /** Lets a process run a delivery. A thrown error makes the queue run it again, as the end of a lease does. */
  private async run(delivery: WebhookDelivery, attempt: number): Promise<DeliveryRun> {
    const { simulation } = this;
    const alive = [...this.consumers].filter(([process]) => process.alive);
    const point = `${this.name} run ${++this.runs}`;
    if (alive.length === 0) throw new Error('No process consumes the queue.');
    const [process, handler] = simulation.pick(point, alive);
    const run = await new Promise<DeliveryRun>((resolve, reject) => {
      const watch = (): void => {
        simulation.after(LEASE, undefined, () => {
          if (process.alive && process.stalledUntil <= simulation.time) watch();
          else reject(new Error('The lease has ended.'));
        });
      };
      watch();
      simulation.after(1, process, async () => {
        if (!process.survives(`${point} claim`)) return;
        void handler(delivery, attempt).then(
          (made) => void this.record(process, () => resolve(made)),
          (error: unknown) => void this.record(process, () => reject(error)),
        );
      });
    });
    this.observer(delivery, run);
    return run;
  }

  private async record(process: SimulatedProcess, outcome: () => void): Promise<void> {
    for (;;) {
      try {
        return await process.call(this.name, 'settle', outcome);
      } catch {
        await new Promise<void>((resolve) => void this.simulation.after(RETRY, process, resolve));
      }
    }
  }
}

/** The queue of one process. */
export class QueueClient extends WebhookQueue {
  override readonly durable = true;
  override readonly shared = true;
  override readonly transactional = true;

  /** @param transactionOf - the transaction on the server; `undefined` if its end is not known, so that it records at once */
  constructor(
    private readonly process: SimulatedProcess,
    private readonly server: QueueServer,
    private readonly transactionOf: (tx: unknown) => Transaction | undefined,
  ) {
    super();
  }

  override readonly enqueue: WebhookQueue['enqueue'] = (deliveries, { tx, check } = {}) => {
    const transaction = tx === undefined ? undefined : this.transactionOf(tx);
    return this.call('enqueue', () => this.server.enqueue(deliveries, transaction, check));
  };

  override consume(handler: DeliveryHandler): void {
    this.server.addConsumer(this.process, handler);
  }

  override readonly find: WebhookQueue['find'] = (ids) =>
    this.call('find', (queue) => queue.find(ids));

  override readonly limitLane: InProcessQueue['limitLane'] = (lane, limits) =>
    this.call('limitLane', (queue) => queue.limitLane(lane, limits));

  override readonly list: WebhookQueue['list'] = (filter, page) =>
    this.call('list', (queue) => queue.list(filter, page));

  override readonly attempts: WebhookQueue['attempts'] = (id) =>
    this.call('attempts', (queue) => queue.attempts(id));

  override readonly counts: WebhookQueue['counts'] = (filter) =>
    this.call('counts', (queue) => queue.counts(filter));

  override readonly redeliver: WebhookQueue['redeliver'] = (ids) =>
    this.call('redeliver', (queue) => queue.redeliver(ids));

  override readonly skip: WebhookQueue['skip'] = (ids) =>
    this.call('skip', (queue) => queue.skip(ids));

  override readonly prune: WebhookQueue['prune'] = (before, scope) =>
    this.call('prune', (queue) => queue.prune(before, scope));

  override readonly erase: WebhookQueue['erase'] = (filter) =>
    this.call('erase', (queue) => queue.erase(filter));

  override async stop(): Promise<number> {
    this.server.removeConsumer(this.process);
    return this.server.queue.size;
  }

  private call<Result>(
    operation: string,
    effect: (queue: InProcessQueue) => Promise<Result>,
  ): Promise<Result> {
    const { process, server } = this;
    return process.call(server.name, operation, () => effect(server.queue));
  }
}
