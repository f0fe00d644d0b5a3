import { randomBytes } from 'node:crypto';
import { mkdtemp, rm } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { setTimeout } from 'node:timers/promises';
import { ScriptProcess } from '../fixtures/child-process.mjs';
import { dropJobs } from '../fixtures/drop-jobs.mjs';
import { LEASES } from '../fixtures/durable-queues.mjs';
import { chanceOf } from './chance.mjs';
import { Effects } from './effects.mjs';
import { HostedDatabase } from './hosted-database.mjs';
import { UnreliableProxy } from './unreliable-proxy.mjs';

const ISSUER = 'https://chaos.example';
/** Share of the events whose first run in each process fails. */
const HANDLER_FAILURES = 0.1;
/** Minimum milliseconds between two kills; a random part of as much is added. */
const BETWEEN_KILLS = 450;
/** Events, and faults of each kind, that a run has at least, however slow the machine is. */
const LEAST_EVENTS = 50;
const LEAST_FAULTS = 2;
/** Milliseconds within which these must occur, and within which the rest must be delivered after the last fault. */
const PATIENCE = 120_000;

/** Runs senders and receivers on one engine and one replay store, and kills them at random. */
export class Conductor {
  #options;
  #secret = randomBytes(32).toString('hex');
  #acknowledged = new Set();
  #up = new Map();
  #kills = { sender: 0, receiver: 0 };
  #starts = 0;

  /** @param options - `engine`, `replay`, `seed`, `seconds`, `thorough`, `postgres` and `redis` (URLs, if available) */
  constructor(options) {
    this.#options = options;
  }

  async run() {
    const { postgres, seed, replay } = this.#options;
    this.name = `chaos_${randomBytes(6).toString('hex')}`;
    this.directory = await mkdtemp(join(tmpdir(), 'webhooks-chaos-'));
    this.hosted = postgres === undefined ? await HostedDatabase.start() : undefined;
    this.effects = new Effects({ url: postgres ?? this.hosted.url, schema: this.name });
    this.proxy = new UnreliableProxy(seed);
    try {
      this.origin = await this.proxy.start();
      await this.effects.create();
      if (replay === 'postgres' || replay === 'pglite') await this.#createReplayTable();
      await Promise.all(
        ['receiver-0', 'receiver-1', 'sender-0', 'sender-1'].map((name) => this.#start(name)),
      );
      await this.#killRepeatedly();
      await this.#settle();
      return await this.#report();
    } finally {
      await this.#clear();
    }
  }

  async #createReplayTable() {
    const { PostgresReplayStore } = await import('../../dist/postgres/index.js');
    await new PostgresReplayStore(this.effects.client, { schema: this.name }).migrate();
  }

  /** Starts a process and waits until it is ready. */
  async #start(name, publishes = true) {
    const isReceiver = name.startsWith('receiver');
    const { promise, resolve } = withResolvers();
    const child = new ScriptProcess(
      new URL(isReceiver ? 'receiver.process.mjs' : 'sender.process.mjs', import.meta.url),
      isReceiver ? this.#receiverSettings(name) : this.#senderSettings(name, publishes),
      (word, value) => {
        if (word === 'published') this.#acknowledged.add(value);
        if (word === 'listening') this.proxy.replicas.set(name, value);
        if (word === 'listening' || word === 'ready') resolve();
      },
    );
    this.#up.set(name, { child, ready: promise });
    await Promise.race([promise, child.ended().then(() => this.#requireStarted(name))]);
  }

  /** A process that ended by itself is still listed; a killed one is not. */
  #requireStarted(name) {
    if (this.#up.has(name)) throw new Error(`${name} exited before it was ready.`);
  }

  #receiverSettings(name) {
    const { seed, replay, postgres, redis } = this.#options;
    return {
      adapter: name.endsWith('0') ? 'express' : 'fastify',
      seed,
      failures: HANDLER_FAILURES,
      replay,
      database: { url: postgres ?? this.hosted.url, schema: this.name },
      redis,
      issuer: ISSUER,
      secret: this.#secret,
    };
  }

  #senderSettings(name, publishes) {
    const { engine, postgres, redis } = this.#options;
    const directory = join(this.directory, name);
    const started = `${name}-${++this.#starts}`;
    // Senders of one server share their keys; an embedded database numbers its own, and a process in memory too.
    const orderedBy = { memory: started, pglite: name }[engine] ?? 'all';
    return {
      engine,
      place: engine === 'memory' ? {} : { postgres, redis, name: `${this.name}_jobs`, directory },
      // Ids are not reused: an event may have been recorded without being acknowledged.
      name: started,
      orderedBy,
      publishes,
      pause: 20,
      origin: this.origin,
      issuer: ISSUER,
      secret: this.#secret,
    };
  }

  async #kill(name) {
    const { child } = this.#up.get(name);
    this.#up.delete(name);
    this.proxy.replicas.delete(name);
    await child.kill();
  }

  /** Ends a sender gracefully. */
  async #end(name) {
    const { child } = this.#up.get(name);
    this.#up.delete(name);
    child.send('end');
    await child.ended();
  }

  /** Kills and restarts one process after the other. One receiver is always running. */
  async #killRepeatedly() {
    const { seed, seconds } = this.#options;
    const end = Date.now() + seconds * 1_000;
    const restarts = [];
    for (let number = 0; ; number++) {
      const pause = BETWEEN_KILLS * (1 + chanceOf(seed, 'pause', number));
      const isOver = Date.now() + pause >= end && this.#hasEveryFault();
      if (isOver || Date.now() >= end + PATIENCE) break;
      await setTimeout(pause);
      const kind = chanceOf(seed, 'kind', number) < 0.5 ? 'sender' : 'receiver';
      const victim = `${kind}-${chanceOf(seed, 'victim', number) < 0.5 ? 0 : 1}`;
      await Promise.all([`${kind}-0`, `${kind}-1`].map((name) => this.#up.get(name)?.ready));
      await this.#kill(victim);
      this.#kills[kind]++;
      restarts.push(this.#start(victim));
    }
    await Promise.all(restarts);
  }

  /** Whether the run has had enough faults to prove anything; a slow machine needs more time for them. */
  #hasEveryFault() {
    const { sender, receiver } = this.#kills;
    const { answersLost, handlerFailures } = this.proxy;
    const faults = [sender, receiver, answersLost, handlerFailures];
    return this.#acknowledged.size >= LEAST_EVENTS && Math.min(...faults) >= LEAST_FAULTS;
  }

  /** Stops publishing and all faults; waits until everything is delivered or no more requests arrive. */
  async #settle() {
    const { engine, thorough } = this.#options;
    this.proxy.calm = true;
    const senders = [...this.#up.keys()].filter((name) => name.startsWith('sender'));
    if (engine !== 'memory') {
      // New senders deliver the rest; their circuits are closed.
      await Promise.all(senders.map((name) => (thorough ? this.#kill(name) : this.#end(name))));
      if (thorough) this.#kills.sender += senders.length;
      await Promise.all(senders.map((name) => this.#start(name, false)));
    } else {
      for (const name of senders) this.#up.get(name).child.send('stop');
    }
    const end = Date.now() + PATIENCE;
    // In a thorough run, wait for the leases of the last kill to expire, so that duplicates can occur.
    const quiet = thorough ? LEASES[engine] + 3_000 : 1_500;
    const isQuiet = () => Date.now() - this.proxy.lastRequest > quiet;
    while (Date.now() < end) {
      const isDone = engine === 'memory' || (await this.#lost()) === 0;
      if (isDone && isQuiet()) return;
      await setTimeout(200);
    }
  }

  async #lost() {
    const runs = await this.effects.runs();
    return [...this.#acknowledged].filter((id) => !runs.has(id)).length;
  }

  async #report() {
    const { engine, replay, seed } = this.#options;
    const { attempts, answersLost, handlerFailures, handledTwice } = this.proxy;
    const { keys, outOfOrder, mostAtOnce } = this.proxy;
    const runs = [...(await this.effects.runs()).values()];
    const ranTwice = runs.filter((times) => times > 1).length;
    return {
      engine,
      replay,
      seed,
      published: this.#acknowledged.size,
      attempts,
      kills: this.#kills.sender + this.#kills.receiver,
      answersLost,
      handlerFailures,
      lost: await this.#lost(),
      keys,
      outOfOrder,
      mostAtOnce,
      ranTwice,
      handledTwice,
      // An effect in one transaction with the replay record happens once or not at all. Otherwise a handler whose process
      // was killed between effect and record runs twice; an idempotent handler still has one effect.
      doubled: replay === 'postgres' || replay === 'none' ? ranTwice : handledTwice,
    };
  }

  async #clear() {
    await Promise.all([...this.#up.keys()].map((name) => this.#kill(name)));
    this.proxy.close();
    await this.effects.close({ drop: true });
    await this.hosted?.close();
    await rm(this.directory, { recursive: true, force: true });
    await dropJobs(this.#options.engine, { ...this.#options, name: `${this.name}_jobs` });
    await dropEntries(this.#options, this.name);
  }
}

function withResolvers() {
  let resolve;
  const promise = new Promise((done) => (resolve = done));
  return { promise, resolve };
}

/** Removes the keys of a replay store from Redis. */
async function dropEntries({ replay, redis }, prefix) {
  if (replay !== 'redis') return;
  const { Redis } = await import('ioredis');
  const client = new Redis(redis);
  for await (const keys of client.scanStream({ match: `${prefix}*`, count: 1_000 })) {
    if (keys.length > 0) await client.del(...keys);
  }
  client.disconnect();
}
