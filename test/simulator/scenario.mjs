// Two publishers on one queue, two receivers on one replay store, and what the invariants say of them.
import { MemoryEndpointStore } from '../../build/lib/index.js';
import { EndpointStore } from '../../build/lib/ports/index.js';
import { InMemoryWebhookTransport } from '../../build/lib/testing/index.js';
import { Network } from '../../build/lib/testing/simulation/network.js';
import { ReplayServer } from '../../build/lib/testing/simulation/replay-server.js';
import { Slot } from '../../build/lib/testing/simulation/simulated-process.js';
import { drawOutage, HORIZON, Simulation } from '../../build/lib/testing/simulation/simulation.js';
import { startPublisher, startReceiver } from './applications.mjs';
import { DeliveryModel, stepOf } from './delivery-model.mjs';
import { DeliveryTable } from './delivery-table.mjs';
import { handle } from './handler.mjs';
import { Invariants } from './invariants.mjs';

const TENANTS = ['red', 'blue'];
/** Numbers of the events that are published. */
const EVENTS = [0, 1, 2, 3];
const SERVERS = ['deliveries', 'received', 'replay', 'endpoints', 'database'];
/** Limits that an endpoint may have. */
const LIMITS = [
  {},
  { concurrency: 1 },
  { rateLimit: { perSecond: 0.5, burst: 2 } },
  { concurrency: 2, rateLimit: { perSecond: 1, burst: 1 } },
];
/** Milliseconds between two looks of an operator at dead deliveries. */
const ROUNDS = 60_000;
/** Milliseconds around the end of an event in which its publishers are disturbed, and how often they may be. */
const AROUND_END = 4_000;
const DISTURBANCES = 12;

/** The parts of a world that a planted fault replaces. */
const PARTS = { DeliveryTable, ReplayServer, Network, MemoryEndpointStore };

/**
 * Runs a seed.
 *
 * @param options - of the {@link Simulation}; `log`: of the statements; `plant`: replaces {@link PARTS}; `events`: numbers of those that are published
 */
export async function simulate(seed, { plant = {}, events = EVENTS, log, ...options } = {}) {
  const simulation = new Simulation(seed, options);
  simulation.log = log;
  const world = new World(simulation, { ...PARTS, ...plant }, events);
  await simulation.run(world);
  const { violation, faults, trace, digest, steps } = simulation;
  return { seed, events, violation, faults, trace, digest, steps };
}

class World {
  constructor(simulation, parts, events) {
    this.simulation = simulation;
    this.invariants = new Invariants(simulation);
    this.isBurst = simulation.roll('burst') < 0.5;
    const queued = simulation.roll('acknowledge queued') < 0.35;
    // With few attempts deliveries die, and an operator sends them again.
    this.attempts = simulation.roll('few attempts') < 0.3 ? 3 : undefined;
    this.invariants.maxAttempts = this.attempts;
    this.isExpiring = simulation.roll('events expire') < 0.4;
    this.onDead = simulation.roll('a dead event blocks its key') < 0.3 ? 'block' : 'skip';
    this.invariants.onDead = this.onDead;
    this.limits = Object.fromEntries(
      TENANTS.map((tenant) => [tenant, simulation.pick(`limits ${tenant}`, LIMITS)]),
    );
    simulation.outages = new Map(
      SERVERS.map((name) => [name, drawOutage(simulation, 'store outage', name)]),
    );
    this.deliveries = this.#table(parts, 'deliveries', 'publisher');
    this.received = queued ? this.#table(parts, 'received', 'receiver') : undefined;
    this.invariants.tables = { deliveries: this.deliveries, received: this.received };
    this.replay = new parts.ReplayServer(simulation);
    this.endpoints = new parts.MemoryEndpointStore();
    for (const tenant of TENANTS)
      void this.endpoints.insert(
        endpointOf(tenant, { ...this.limits[tenant], onDead: this.onDead }),
      );
    this.receivers = ['rec-a', 'rec-b'].map((name) => this.#receiver(name));
    this.network = new parts.Network(simulation, this.receivers, this.invariants);
    this.publishers = ['pub-a', 'pub-b'].map((name) => this.#publisher(name));
    this.network.partition(this.publishers);
    for (const n of events) {
      const event = this.invariants.add(this.#draw(n));
      this.#publish(event);
      if (event.expiresIn !== undefined) this.#disturb(event);
    }
    for (const tenant of TENANTS) this.#pause(tenant);
    if (this.attempts !== undefined || this.isExpiring) this.#reviveDead(HORIZON);
  }

  hasEnded() {
    return this.invariants.areAllDone();
  }

  unfinished = () => this.invariants.unfinished();

  atEnd() {
    this.invariants.atEnd();
  }

  #draw(n) {
    const { simulation } = this;
    const isExpiring = this.isExpiring && simulation.roll(`expires ${n}`) < 0.6;
    return {
      id: `e${n}`,
      tenant: simulation.pick(`tenant ${n}`, TENANTS),
      isTransactional: simulation.roll(`transactional ${n}`) < 0.6,
      // Half of the runs publish within a few seconds, so that events wait for each other.
      publishAt: simulation.between(`publish ${n}`, 0, this.isBurst ? 5_000 : HORIZON * 0.7),
      orderingKey: simulation.roll(`key ${n}`) < 0.6 ? 'key' : undefined,
      expiresIn: isExpiring ? simulation.between(`expires ${n} in`, 500, 30_000) : undefined,
    };
  }

  #table(parts, name, side) {
    const { simulation, invariants, limits } = this;
    const model = new DeliveryModel(simulation);
    const idOf = (row) => row.event_id ?? row.id;
    const note = (text) => simulation.note(undefined, `${name}: ${text}`);
    const table = new parts.DeliveryTable(simulation, name, {
      recorded(row) {
        note(`${idOf(row)} is recorded`);
        model.record(row);
      },
      claimed(row, before, process) {
        note(`${idOf(row)} is claimed by ${process.label} (claim ${row.claim})`);
        if (model.stateOf(row) === 'claimed') invariants.leaseTaken(row, before);
        model.step(row, 'claim');
        invariants.claimed(table, row, side === 'publisher' ? limits[row.tenant] : {});
      },
      unclaimed(row) {
        note(`${idOf(row)}: the claim is rolled back`);
        invariants.unclaimed(row);
        model.rollBack(row);
      },
      settled(row, before, outcome, by) {
        const step = stepOf(outcome);
        note(`${idOf(row)}: ${step} by ${by.process.label} (attempts ${row.attempts})`);
        invariants.settled(side, row, before, step, { ...by, outcome });
        model.step(row, step);
      },
      refused(row, process) {
        note(`${idOf(row)}: an outcome of ${process.label} is refused, its claim has ended`);
      },
      redelivered(row) {
        note(`${idOf(row)} is redelivered`);
        model.step(row, 'redeliver');
      },
      skipped(row) {
        note(`${idOf(row)} is skipped`);
        invariants.skipped(row);
      },
    });
    return table;
  }

  #publisher(name) {
    return new Slot(this.simulation, name, (process) =>
      startPublisher(process, {
        deliveries: this.deliveries,
        endpoints: new EndpointClient(process, this.endpoints),
        transport: new InMemoryWebhookTransport((webhook) => {
          this.invariants.requested(webhook, process);
          return this.network.send(process, webhook);
        }),
        attempts: this.attempts,
        onDeliveryEvent: (event) => this.invariants.reported(event),
      }),
    );
  }

  #receiver(name) {
    return new Slot(this.simulation, name, (process) =>
      startReceiver(process, {
        replay: this.replay,
        received: this.received,
        handle: (event, by) => handle(event, by, this.invariants),
      }),
    );
  }

  /** The application publishes from an outbox: it repeats an event under its id until it is accepted. */
  #publish(event, round = 0) {
    const { simulation, invariants } = this;
    const slot = simulation.pick(`${event.id} by ${round}`, this.publishers);
    simulation.after(round === 0 ? event.publishAt : 3_000, undefined, () => {
      slot.process.ask(`publish ${event.id}`, {
        call: (app) => {
          invariants.publishing(event, slot.process);
          const { id, tenant, orderingKey, expiresIn } = event;
          const options = { id, tenant, orderingKey, expiresIn };
          return app.publisher.publish('thing.made', { id }, options);
        },
        done: () => invariants.accepted(event),
        failed: () => this.#publish(event, round + 1),
      });
    });
  }

  /** Kills, stalls and clock jumps of publishers around the end of an event that expires. */
  #disturb({ id, publishAt, expiresIn }) {
    const { simulation } = this;
    for (let n = 0; n < DISTURBANCES; n++) {
      const point = `end of ${id}#${n}`;
      const end = publishAt + expiresIn;
      const at = simulation.between(`${point} at`, end - AROUND_END, end + AROUND_END);
      const slot = simulation.pick(`${point} by`, this.publishers);
      simulation.after(at, undefined, () => void slot.process.survives(point));
    }
  }

  /** An operator pauses the endpoint of a tenant for a while. */
  #pause(tenant) {
    const { simulation } = this;
    if (simulation.roll(`pause ${tenant}`) > 0.2) return;
    const repeat = (action, wait, next) =>
      simulation.after(wait, undefined, () => {
        const { process } = this.publishers.find(({ app }) => app) ?? this.publishers[0];
        process.ask(`${action} ${tenant}`, {
          call: (app) => app.endpoints[action](tenant),
          done: () => next?.(),
          failed: () => repeat(action, 3_000, next),
        });
      });
    const from = simulation.between(`pause ${tenant} from`, 0, HORIZON / 2);
    const length = simulation.between(`pause ${tenant} length`, 5_000, HORIZON / 2);
    repeat('pause', from, () => repeat('resume', length));
  }

  /** An operator sends dead deliveries again, or skips them where they block their keys, until all events are done. */
  #reviveDead(wait, round = 0) {
    this.simulation.after(wait, undefined, () => {
      this.#reviveDead(ROUNDS, round + 1);
      const { process } = this.publishers.find(({ app }) => app) ?? this.publishers[0];
      for (const { id, status } of this.deliveries.rows.values()) {
        if (status !== 'dead') continue;
        const maySkip =
          this.onDead === 'block' && this.simulation.roll(`skip ${id} ${round}`) < 0.5;
        const action = maySkip ? 'skip' : 'redeliver';
        process.ask(`${action} ${id}`, {
          call: (app) => app.deliveries[action](id),
          done() {},
          failed() {},
        });
      }
    });
  }
}

/** The endpoint store of one process. */
class EndpointClient extends EndpointStore {
  durable = true;
  transactional = false;

  constructor(process, store) {
    super();
    for (const name of ['insert', 'find', 'subscribed', 'count', 'list', 'replace', 'remove']) {
      this[name] = (...args) =>
        process.call('endpoints', name, () => store[name](...structuredClone(args)));
    }
  }
}

function endpointOf(tenant, settings) {
  return {
    id: tenant,
    tenant,
    url: `https://b.example/hooks?tenant=${tenant}`,
    events: ['**'],
    settings,
    keys: [],
    version: 1,
    createdAt: 0,
    updatedAt: 0,
  };
}
