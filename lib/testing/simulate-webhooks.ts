import type { INestApplicationContext } from '@nestjs/common';
import { DAY } from '../clock/duration.js';
import { readOptions } from '../options/read-options.js';
import { func, object, optional, required, whole } from '../options/rules.js';
import type { DeliveryStatus } from '../queue/webhook-delivery.js';
import type { ListedDelivery } from '../queue/webhook-queue.js';
import { type SeedResult, shrink } from './simulation/shrink.js';
import { type Simulate, SimulatedServices } from './simulation/simulated-services.js';
import { Simulation, type SimulationSettings } from './simulation/simulation.js';

/** Virtual milliseconds within which everything must end: retries may be hours apart. */
const LIMIT = 7 * DAY;
/** Turns of the event loop after each step: a request through an HTTP server takes several. */
const TURNS = 12;

/** Builds an application for one process, with `simulate(builder)` in place of the builder of its testing module. */
export type SimulatedApplication<State> = (
  simulate: Simulate,
  state: State,
) => Promise<INestApplicationContext>;

/** A delivery at the end of a seed, or a received event of a receiver that acknowledges before it handles. */
export interface SimulatedDelivery {
  readonly eventId: string;
  /** The event's name. */
  readonly event: string;
  readonly endpointId?: string | undefined;
  /** Name of the receiver of a received event. */
  readonly receiver?: string | undefined;
  readonly status: DeliveryStatus;
  readonly attempts: number;
}

export interface SimulateWebhooksOptions<State> {
  /** Number of seeds, each with a schedule of failures of its own; default 100. */
  readonly seeds?: number | undefined;
  /** The first seed; default 1. */
  readonly seed?: number | undefined;
  /** Calls of `publish` in each seed; default 4. */
  readonly events?: number | undefined;
  /** Creates what survives a restart, such as the tables of your repositories, for each seed. */
  readonly setUp?: (() => State | Promise<State>) | undefined;
  /**
   * Publishes event number `n`, from 0. It is called again for the same number, maybe on another process, until it resolves, so
   * pass an `id` that follows from `n`.
   */
  readonly publish: (app: INestApplicationContext, n: number) => Promise<unknown>;
  /** Throws unless the state is right after everything has ended, for example by `expect`. */
  readonly check?:
    ((state: State, deliveries: readonly SimulatedDelivery[]) => void | Promise<void>) | undefined;
  /**
   * Resolves with whether a transaction of your application was committed. Needed to simulate `event.commit(tx)` and
   * `publish(…, { tx })`; without it, they record at once.
   */
  readonly transactionEnd?: ((tx: unknown) => Promise<boolean>) | undefined;
}

type Options = SimulateWebhooksOptions<unknown>;

const OPTIONS = object<Options>()({
  seeds: optional(whole(1), 100),
  seed: optional(whole(1), 1),
  events: optional(whole(1, 100), 4),
  setUp: optional(func<NonNullable<Options['setUp']>>('() => state')),
  publish: required(func<Options['publish']>('(app, n) => app.get(WebhookPublisher).publish(…)')),
  check: optional(func<NonNullable<Options['check']>>('(state, deliveries) => void')),
  transactionEnd: optional(
    func<NonNullable<Options['transactionEnd']>>('(tx) => Promise<boolean>'),
  ),
});

/** A seed that violates an invariant. The message has its shortest trace. */
export class SimulationError extends Error {
  override readonly name = 'SimulationError';
  /** Repeats the failure: pass `{ seed, seeds: 1 }`. */
  readonly seed: number;
  /** What does not hold; `check` for your own. */
  readonly invariant: string;
  /** The failures that are needed to violate it. */
  readonly faults: readonly string[];
  /** What happened, with virtual times. */
  readonly trace: readonly string[];

  constructor(shortest: SeedResult, all: number) {
    const { seed, violation, faults, trace } = shortest;
    super(
      `Seed ${seed} violates "${violation!.invariant}": ${violation!.message.slice(violation!.invariant.length + 2)}
Of its ${all} failures, ${faults.length} are needed. Repeat it with { seed: ${seed}, seeds: 1 }.

${trace.join('\n')}`,
      { cause: violation!.cause },
    );
    this.seed = seed;
    this.invariant = violation!.invariant;
    this.faults = faults;
    this.trace = trace;
  }
}

/**
 * Runs two processes of a publishing and two of a receiving application on virtual time, through schedules of failures: lost, late
 * and repeated requests, partitions, failing stores, killed, stalled and restarted processes, and clocks that jump. A seed repeats
 * its schedule exactly.
 *
 * Durable queues and shared replay stores are replaced by simulated ones, which survive a kill; those in memory are lost with
 * their process, as in production. Requests go to the other application, whatever host their URL names.
 *
 * Always checked: an accepted event is delivered or dead, and never lost; an effect with `event.commit(tx)` happens once;
 * a delivery is recorded as delivered only after a success; the events of an ordering key arrive in order; everything ends.
 *
 * @returns what was simulated; `faults` are the failures that happened
 * @throws {@link SimulationError} for the first seed that violates an invariant
 * @throws Error if no event was recorded for any endpoint
 */
export async function simulateWebhooks<State = undefined>(
  publisher: SimulatedApplication<State>,
  receiver: SimulatedApplication<State>,
  options: SimulateWebhooksOptions<State>,
): Promise<{ readonly seeds: number; readonly faults: number; readonly steps: number }> {
  const read = readOptions(OPTIONS, options, 'simulateWebhooks');
  const numbers = Array.from({ length: read.events }, (_, n) => n);
  let faults = 0;
  let steps = 0;
  let recorded = 0;
  const simulate = async (seed: number, settings?: SimulationSettings): Promise<SeedResult> => {
    const state = (await read.setUp?.()) as State;
    const simulation = new Simulation(seed, { turns: TURNS, limit: LIMIT, ...settings });
    const services = new SimulatedServices(
      simulation,
      {
        publisher: (override) => publisher(override, state),
        receiver: (override) => receiver(override, state),
        publish: read.publish,
        check: async (deliveries) => {
          recorded += deliveries.length;
          await read.check?.(state, deliveries.map(summaryOf));
        },
        transactionEnd: read.transactionEnd,
      },
      numbers,
    );
    await simulation.run(services);
    const { violation, faults: happened, trace, digest, steps: count } = simulation;
    // All events are published in each run: `check` may expect them.
    return { seed, events: [], violation, faults: happened, trace, digest, steps: count };
  };
  for (let seed = read.seed; seed < read.seed + read.seeds; seed++) {
    const result = await simulate(seed);
    faults += result.faults.length;
    steps += result.steps;
    if (result.violation === undefined) continue;
    const shortest = await shrink(result, ({ only, traced }) => simulate(seed, { only, traced }));
    throw new SimulationError(shortest, result.faults.length);
  }
  if (recorded === 0) {
    throw new Error(
      'simulateWebhooks: no delivery was recorded, so nothing was simulated; await a call of WebhookPublisher in "publish", for an event that an endpoint takes',
    );
  }
  return { seeds: read.seeds, faults, steps };
}

function summaryOf({ delivery, status, attempts }: ListedDelivery): SimulatedDelivery {
  const { eventId, event } = delivery;
  return delivery.received === undefined
    ? { eventId, event, endpointId: delivery.endpointId, status, attempts }
    : { eventId, event, receiver: delivery.received.receiver, status, attempts };
}
