import { setTimeout as sleep } from 'node:timers/promises';
import { ScriptProcess } from '../fixtures/child-process.mjs';
import { Address, freePorts } from './servers.mjs';

const PROCESS = new URL('app.process.mjs', import.meta.url);
/** Milliseconds for which acknowledged events may be outstanding after the load has ended. */
const PATIENCE = 90_000;
/** The numbers of the events of a restarted instance begin here, times the restarts. */
const NUMBERS = 1_000_000;

/** The instances of an application under load, of which every acknowledged event is counted. */
export class Trial {
  /** When each event was acknowledged, and when it was handled first, in epoch milliseconds. */
  acknowledged = new Map();
  handled = new Map();
  duplicates = 0;
  refused = 0;
  /** Rejects when an instance ends that the trial has not stopped. */
  broken;
  #break;
  #instances = [];
  #place;
  #pause;
  /** Where the instances receive: in front of those that run, as a load balancer is. */
  #address;

  /**
   * @param place - settings of `openStores`
   * @param pause - milliseconds that a caller waits between two events
   */
  static async start(place, count, pause = 20) {
    const trial = new Trial();
    trial.broken = new Promise((_, reject) => (trial.#break = reject));
    trial.broken.catch(() => {});
    trial.#place = place;
    trial.#pause = pause;
    trial.#address = await Address.open([]);
    for (const [index, port] of (await freePorts(count)).entries()) {
      trial.#instances.push({ index, port, restarts: 0, child: undefined });
    }
    await Promise.all(trial.#instances.map((one) => trial.#launch(one)));
    return trial;
  }

  get size() {
    return this.#instances.length;
  }

  publish() {
    for (const one of this.#instances) this.#publish(one);
  }

  /** Kills an instance, or asks it to shut down, and starts it again. */
  async restart(index, signal) {
    const one = this.#instances[index];
    this.#address.targets = this.#address.targets.filter((port) => port !== one.port);
    await stop(one, signal);
    one.restarts++;
    await this.#launch(one);
    this.#publish(one);
  }

  /** @returns the heap after a garbage collection and the resident memory of all instances, in MB */
  async memory() {
    const sizes = await Promise.all(this.#instances.map((one) => one.ask('memory')));
    const [heap, resident] = [0, 1].map((part) => {
      const bytes = sizes.reduce((sum, size) => sum + Number(size.split(',')[part]), 0);
      return Math.round(bytes / 1e5) / 10;
    });
    return { heap, resident };
  }

  /** Stops publishing, and waits until every acknowledged event was handled. */
  async drain() {
    for (const { child } of this.#instances) child.send('pause');
    const deadline = Date.now() + PATIENCE;
    await sleep(500);
    while (this.lost().length > 0 && Date.now() < deadline) await sleep(100);
  }

  lost() {
    return [...this.acknowledged.keys()].filter((id) => !this.handled.has(id));
  }

  /** @returns the longest time from an acknowledgement to the handler, in milliseconds */
  longest() {
    const times = [...this.acknowledged].map(([id, at]) => (this.handled.get(id) ?? at) - at);
    return Math.max(0, ...times);
  }

  /** @returns milliseconds from a time to the first event that was published after it and handled */
  backAfter(time) {
    const later = [...this.acknowledged].filter(([, at]) => at >= time).map(([id]) => id);
    return Math.min(...later.map((id) => (this.handled.get(id) ?? Infinity) - time));
  }

  async stop() {
    await Promise.all(this.#instances.map((one) => stop(one)));
    this.#address.close();
  }

  #publish({ child, restarts }) {
    child.send(`publish ${restarts * NUMBERS}`);
  }

  async #launch(one) {
    const { index, port } = one;
    const url = `http://127.0.0.1:${this.#address.port}/webhooks`;
    const settings = { place: this.#place, port, url, instance: index, pause: this.#pause };
    const answers = new Map();
    const answerTo = (word) => new Promise((resolve) => answers.set(word, resolve));
    const ready = answerTo('ready');
    one.child = new ScriptProcess(PROCESS, settings, (word, value) => {
      answers.get(word)?.(value);
      this.#note(word, value);
    });
    one.ask = (word) => {
      const answer = answerTo(word);
      one.child.send(word);
      return answer;
    };
    one.isStopping = false;
    void one.child.ended().then(() => {
      if (!one.isStopping) this.#break(new Error(`Instance ${index} ended by itself.`));
    });
    await Promise.race([ready, this.broken]);
    this.#address.targets = [...this.#address.targets, port];
  }

  #note(word, id) {
    const now = Date.now();
    if (word === 'acknowledged') this.acknowledged.set(id, now);
    if (word === 'refused') this.refused++;
    if (word !== 'handled') return;
    if (this.handled.has(id)) this.duplicates++;
    else this.handled.set(id, now);
  }
}

async function stop(one, signal) {
  one.isStopping = true;
  await one.child.kill(signal);
}
