import type { INestApplicationContext, LoggerService } from '@nestjs/common';
import { MemoryEndpointStore } from '../../endpoints/memory-endpoint.store.js';
import type { EndpointStore } from '../../endpoints/endpoint-store.js';
import type { WebhookPublisherOptions } from '../../publisher/publisher-options.js';
import { InProcessQueue } from '../../queue/in-process.queue.js';
import type { DeliveryRun, WebhookDelivery } from '../../queue/webhook-delivery.js';
import type { ListedDelivery, WebhookQueue } from '../../queue/webhook-queue.js';
import type { WebhookReceiverOptions } from '../../receiver/receiver-options.js';
import { MemoryReplayStore } from '../../replay/memory-replay.store.js';
import type { ReplayStore } from '../../replay/replay-store.js';
import type { WebhookModuleOptions } from '../../webhook-module-options.interface.js';
import {
  resolveWebhookOptions,
  type ResolvedWebhookOptions,
} from '../../webhook-options.resolver.js';
import { initialise, isHttp, requestInMemory } from '../in-memory-request.js';
import type { SentWebhook } from '../in-memory-webhook.transport.js';
import { replaceParts, type TestingBuilder } from '../override-webhooks.js';
import { Network } from './network.js';
import { QueueClient, QueueServer } from './queue-server.js';
import { ReplayClient, ReplayServer } from './replay-server.js';
import { describeError, SimulatedClock, type SimulatedProcess, Slot } from './simulated-process.js';
import { drawOutage, HORIZON, type Simulation, Violation } from './simulation.js';
import { Transaction } from './transaction.js';

/** Milliseconds between two calls of `publish` for the same event. */
const REPEAT = 3_000;
/** Milliseconds after a failure in which a call of `publish` may reject because of it: an earlier call may still run. */
const CONSEQUENCES = 120_000;
/** Milliseconds that go by after everything has ended, in which late copies of requests arrive. */
const AFTERMATH = 60_000;
const EVERYTHING = 10_000;
/** Simulated failures are logged as real ones are. */
const SILENT: LoggerService = { log() {}, warn() {}, error() {} };

/** Replaces the parts of an application that leave its process. */
export type Simulate = <Builder extends TestingBuilder>(builder: Builder) => Builder;

export type StartApplication = (simulate: Simulate) => Promise<INestApplicationContext>;

/** What runs in a simulation, and what is checked at its end. */
export interface ServicesUnderTest {
  readonly publisher: StartApplication;
  readonly receiver: StartApplication;
  publish(app: INestApplicationContext, n: number): Promise<unknown>;
  check(deliveries: readonly ListedDelivery[]): void | Promise<void>;
  readonly transactionEnd: ((tx: unknown) => Promise<boolean>) | undefined;
}

interface RunningApplication {
  readonly context: INestApplicationContext;
  receive(webhook: SentWebhook): Promise<number>;
}

/** The stores of one application, which survive its processes. */
class Servers {
  readonly queues = new Map<string, QueueServer>();
  readonly replay: ReplayServer;
  readonly endpoints: EndpointStore = new MemoryEndpointStore();

  constructor(
    private readonly simulation: Simulation,
    readonly side: string,
    private readonly observer: (delivery: WebhookDelivery, run: DeliveryRun) => void,
  ) {
    this.replay = new ReplayServer(simulation);
  }

  queue(part: string): QueueServer {
    const name = `${this.side} ${part}`;
    const server = this.queues.get(name) ?? new QueueServer(this.simulation, name, this.observer);
    this.queues.set(name, server);
    return server;
  }
}

/** Two processes of a publishing and two of a receiving application, and what must hold of them. */
export class SimulatedServices {
  private readonly sides: readonly [Servers, Servers];
  private readonly publishers: readonly Slot<RunningApplication>[];
  private readonly accepted = new Set<number>();
  /** Ids of the events that the other application has acknowledged. */
  private readonly acknowledged = new Set<string>();
  /** By URL and ordering key: the number of the last event that was acknowledged first. */
  private readonly lastOfKey = new Map<string, number>();
  /** Queues in memory, which are lost with their process. */
  private readonly local: { readonly process: SimulatedProcess; readonly queue: InProcessQueue }[] =
    [];
  private lastFailure: string | undefined;
  private quiet: 'no' | 'waits' | 'yes' = 'no';

  constructor(
    private readonly simulation: Simulation,
    private readonly tested: ServicesUnderTest,
    private readonly events: readonly number[],
  ) {
    const observer = (delivery: WebhookDelivery, run: DeliveryRun): void =>
      this.settled(delivery, run);
    const serversOf = (side: string): Servers => new Servers(simulation, side, observer);
    this.sides = [serversOf('publisher'), serversOf('receiver')];
    for (const name of ['publisher deliveries', 'replay', 'receiver default']) {
      simulation.outages.set(name, drawOutage(simulation, 'store outage', name));
    }
    const [sending, receiving] = this.sides;
    // An application starts, and gets its network, once the simulation runs.
    this.publishers = ['publisher-a', 'publisher-b'].map((name) =>
      this.slot(name, tested.publisher, sending, () => toReceivers),
    );
    const receivers = ['receiver-a', 'receiver-b'].map((name) =>
      this.slot(name, tested.receiver, receiving, () => toPublishers),
    );
    const toReceivers = new Network(simulation, receivers, this);
    const toPublishers = new Network(simulation, this.publishers, this);
    toReceivers.partition(this.publishers);
    const isBurst = simulation.roll('burst') < 0.5;
    for (const n of events) {
      this.publish(n, simulation.between(`publish ${n}`, 0, isBurst ? 5_000 : HORIZON * 0.7));
    }
  }

  hasEnded(): boolean {
    this.requireNoLoss();
    if (this.pending() > 0 || this.accepted.size < this.events.length) return false;
    if (this.quiet === 'no') {
      this.quiet = 'waits';
      this.simulation.after(AFTERMATH, undefined, () => void (this.quiet = 'yes'));
    }
    return this.quiet === 'yes';
  }

  unfinished(steps?: number): string {
    const open = this.events.filter((n) => !this.accepted.has(n));
    const failure = this.lastFailure === undefined ? '' : ` (${this.lastFailure})`;
    return [
      ...(open.length === 0 ? [] : [`publish never resolves for ${open.join(', ')}${failure}`]),
      ...(this.pending() === 0 ? [] : [`${this.pending()} deliveries are pending`]),
      steps === undefined
        ? 'code that waits for timers, files or sockets does not continue in virtual time'
        : `it has not ended after ${steps} steps; a shorter "retry", such as { attempts: 4 }, or fewer events take fewer`,
    ].join('; ');
  }

  async atEnd(): Promise<void> {
    const lists = await Promise.all(
      this.queues().map((queue) => queue.list({}, { limit: EVERYTHING })),
    );
    try {
      await this.tested.check(lists.flat());
    } catch (error) {
      this.simulation.fail(new Violation('check', describeError(error), { cause: error }));
    }
  }

  answered({ id, url, claims }: SentWebhook, status: number): void {
    if (status >= 300) return;
    const isFirst = !this.acknowledged.has(id);
    this.acknowledged.add(id);
    const { key, seq } = claims.webhook;
    if (!isFirst || typeof seq !== 'number') return;
    const lane = JSON.stringify([url, key]);
    const last = this.lastOfKey.get(lane) ?? -Infinity;
    this.lastOfKey.set(lane, seq);
    this.simulation.check(
      seq > last,
      'the events of a key arrive in order',
      () => `${id} has number ${seq} and follows number ${last}`,
    );
  }

  private settled(delivery: WebhookDelivery, { outcome }: DeliveryRun): void {
    const reason = 'reason' in outcome ? ` (${outcome.reason})` : '';
    this.simulation.note(undefined, `delivery of ${delivery.eventId}: ${outcome.type}${reason}`);
    if (delivery.received !== undefined || outcome.type !== 'delivered') return;
    this.simulation.check(
      this.acknowledged.has(delivery.eventId),
      'delivered means acknowledged',
      () => `${delivery.eventId} is recorded as delivered`,
    );
  }

  private queues(): readonly InProcessQueue[] {
    const shared = this.sides.flatMap(({ queues }) => [...queues.values()]);
    return [...shared, ...this.local].map(({ queue }) => queue);
  }

  private pending(): number {
    return this.queues().reduce((sum, { size }) => sum + size, 0);
  }

  private requireNoLoss(): void {
    for (const { process, queue } of this.local) {
      this.simulation.check(
        process.alive || queue.size === 0,
        'an accepted event is delivered or dead',
        () => `${queue.size} were in the memory of ${process.label} when it was killed`,
      );
    }
  }

  /** The application repeats an event until it is accepted, as from an outbox. */
  private publish(n: number, wait: number, round = 0, troubledUntil = -Infinity): void {
    const { simulation, publishers } = this;
    simulation.after(wait, undefined, () => {
      const { process } = simulation.pick(`publish ${n} by ${round}`, publishers);
      const start = simulation.time;
      process.ask(`publish ${n}`, {
        call: ({ context }) => this.tested.publish(context, n),
        done: () => void this.accepted.add(n),
        failed: (error) => {
          const isTroubled = error === undefined || process.wasTroubled(simulation.time - start);
          const troubled = isTroubled ? simulation.time + CONSEQUENCES : troubledUntil;
          if (error !== undefined) this.lastFailure = messageOf(error);
          if (simulation.time < troubled) return this.publish(n, REPEAT, round + 1, troubled);
          const detail = `publish rejects for ${n}, though nothing has failed (${this.lastFailure})`;
          simulation.fail(new Violation('everything ends', detail, { cause: error }));
        },
      });
    });
  }

  private slot(
    name: string,
    start: StartApplication,
    servers: Servers,
    network: () => Network,
  ): Slot<RunningApplication> {
    return new Slot(this.simulation, name, async (process) => {
      const simulate: Simulate = (builder) => {
        const resolve = (options: WebhookModuleOptions): ResolvedWebhookOptions =>
          resolveWebhookOptions(this.replaced(options, process, servers));
        builder.setLogger?.(SILENT);
        return replaceParts(builder, resolve, network().transportOf(process));
      };
      process.isStarting = true;
      const context = await start(simulate);
      const app = isHttp(context) ? context : undefined;
      if (app === undefined && servers.side === 'receiver') {
        throw new Error(
          'simulateWebhooks: the receiver takes no requests; return testing.createNestApplication() from its function',
        );
      }
      await initialise(context);
      process.isStarting = false;
      return { context, receive: async (webhook) => requestInMemory(app!, webhook) };
    });
  }

  /** Replaces stores that survive a process by those of the servers, and keeps those in memory. */
  private replaced(
    options: WebhookModuleOptions,
    process: SimulatedProcess,
    servers: Servers,
  ): WebhookModuleOptions {
    const { receiver, publisher, inbox } = options;
    const clock = new SimulatedClock(this.simulation, process);
    const transactionOf = (tx: unknown): Transaction | undefined => this.transactionOf(process, tx);
    const queueFor = (queue: WebhookQueue | undefined, part: string): WebhookQueue => {
      if (queue?.durable === true) {
        return new QueueClient(process, servers.queue(part), transactionOf);
      }
      const local = new InProcessQueue({ clock });
      this.local.push({ process, queue: local });
      return local;
    };
    const replayFor = (store: ReplayStore | undefined): ReplayStore =>
      store?.scope === 'shared'
        ? new ReplayClient(process, servers.replay, transactionOf)
        : new MemoryReplayStore({ clock });
    const receive = (one: WebhookReceiverOptions): WebhookReceiverOptions => ({
      ...one,
      replay: { ...one.replay, store: replayFor(one.replay?.store) },
      ...(one.acknowledge === 'queued' && {
        queue: queueFor(one.queue, one.name ?? 'default'),
        retry: { ...one.retry, jitter: 0 },
      }),
    });
    const send = (given: WebhookPublisherOptions): WebhookPublisherOptions => ({
      ...given,
      queue: queueFor(given.queue, 'deliveries'),
      endpointStore: given.endpointStore && servers.endpoints,
      // A jitter is drawn at random, which would not follow from the seed.
      retry: { ...given.retry, jitter: 0 },
      endpoints: given.endpoints?.map((endpoint) =>
        endpoint.retry === undefined
          ? endpoint
          : { ...endpoint, retry: { ...endpoint.retry, jitter: 0 } },
      ),
    });
    return {
      ...options,
      clock,
      inbox: inbox && { ...inbox, store: undefined },
      receiver: receiver && [receiver].flat().map(receive),
      publisher: publisher && send(publisher),
    };
  }

  /** Follows a transaction of the application. */
  private transactionOf(process: SimulatedProcess, tx: unknown): Transaction | undefined {
    const { transactionEnd } = this.tested;
    if (transactionEnd === undefined) return undefined;
    const transaction = new Transaction(process);
    transaction.watch(this.simulation);
    const follow = async (): Promise<void> => {
      const isCommitted = await transactionEnd(tx).catch(() => false);
      if (isCommitted && transaction.state === 'open') transaction.commit();
      else transaction.rollBack();
    };
    void follow();
    return transaction;
  }
}

/** An error of `publish` in full: its code alone does not tell what to mend. */
function messageOf(error: unknown): string {
  return error instanceof Error ? `${error.name}: ${error.message}` : describeError(error);
}
