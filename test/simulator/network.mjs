// The network between publishers and receivers, and requests that reach an application without a socket.
import { Readable } from 'node:stream';
import { InMemoryWebhookTransport } from 'nestjs-webhook-token/testing';
import { drawOutage, isWithin } from './processes.mjs';
import { mix } from './simulation.mjs';

export class Network {
  #partitions = new Map();

  /**
   * @param receivers - the slots behind the load balancer of the receiving service
   * @param observer - `sent(webhook)` and `answered(webhook, status)`
   */
  constructor(simulation, receivers, observer) {
    this.simulation = simulation;
    this.receivers = receivers;
    this.observer = observer;
  }

  /** Cuts publishers off from receivers for a while. */
  partition(publishers) {
    for (const from of publishers) {
      for (const to of this.receivers) {
        const link = `${from.name}-${to.name}`;
        this.#partitions.set(link, drawOutage(this.simulation, 'partition', link));
      }
    }
  }

  /** Sends the requests of a process. */
  transportOf(process) {
    return new InMemoryWebhookTransport((webhook) => this.send(process, webhook));
  }

  /** Sends a request. @returns the status, or the code of a network failure */
  async send(process, webhook) {
    const { simulation, observer } = this;
    const point = process.pointOf('http');
    if (!process.survives(`${point} before`)) return never();
    observer.sent(webhook);
    const balanced = mix(`${point} to`, simulation.seed) % this.receivers.length;
    const to = this.receivers[balanced];
    const isCut = isWithin(
      this.#partitions.get(`${process.slot.name}-${to.name}`),
      simulation.time,
    );
    // The attempt times out.
    if (isCut || simulation.happens('loss', point)) return never();
    if (simulation.happens('reset', point)) return this.#fail(process, point, 'ECONNRESET');
    if (simulation.happens('duplicate', point)) {
      const late = simulation.between(`${point} copy`, 1, 30_000);
      simulation.after(late, undefined, () => void this.#arrive(to, webhook, `${point} copy`));
    }
    await this.#travel(undefined, `${point} there`);
    const status = await this.#arrive(to, webhook, point);
    if (status === undefined) return this.#fail(process, point, 'ECONNREFUSED');
    if (simulation.happens('lost answer', point)) return this.#fail(process, point, 'ECONNRESET');
    await this.#travel(process, `${point} back`);
    simulation.note(process, `gets ${status} for ${webhook.id}`);
    return process.survives(`${point} answered`) ? status : never();
  }

  /** @returns the status; `undefined` if the connection was refused, and never if the process is killed */
  async #arrive(slot, webhook, point) {
    const { process } = slot;
    if (slot.app === undefined) return undefined;
    this.simulation.note(process, `receives ${webhook.method} ${webhook.id} (${point})`);
    const status = await new Promise((resolve) => {
      this.simulation.after(0, process, () => slot.app.receive(webhook, resolve));
    });
    this.simulation.note(process, `answers ${status} for ${webhook.id}`);
    this.observer.answered(webhook, status);
    return status;
  }

  async #fail(process, point, code) {
    await this.#travel(process, `${point} ${code}`);
    return code;
  }

  async #travel(process, point) {
    const { simulation } = this;
    const slow = simulation.happens('delay', point)
      ? simulation.between(`${point} slow`, 200, 40_000)
      : 0;
    const ms = 1 + (mix(point, simulation.seed) % 40) + slow;
    await new Promise((resolve) => void simulation.after(ms, process, resolve));
  }
}

/** Hands a request to the HTTP server of an application. */
export function handOver(server, { method, url, headers, body }, onStatus) {
  const named = Object.entries(headers).map(([name, value]) => [name.toLowerCase(), String(value)]);
  const request = Object.assign(Readable.from(body === undefined ? [] : [Buffer.from(body)]), {
    method,
    url: new URL(url).pathname,
    headers: Object.fromEntries(named),
    rawHeaders: named.flat(),
    complete: true,
    httpVersionMajor: 1,
    socket: {},
  });
  const response = {
    headersSent: false,
    destroyed: false,
    setHeader() {},
    writeHead(status) {
      this.status = status;
      return this;
    },
    end() {
      this.headersSent = true;
      onStatus(this.status);
    },
  };
  server.emit('request', request, response);
}

function never() {
  return new Promise(() => {});
}
