import { fork } from 'node:child_process';
import { once } from 'node:events';
import { fileURLToPath } from 'node:url';
import { Client } from './client.mjs';

const SERVER = fileURLToPath(new URL('server.mjs', import.meta.url));

/** A server in a process of its own, whose CPU time is asked for around each lot of requests. */
export class Server {
  static async start(adapter, variant) {
    const child = fork(SERVER, [adapter, variant], {
      stdio: ['ignore', 'inherit', 'inherit', 'ipc'],
    });
    const [{ port }] = await once(child, 'message');
    return new Server(child, port);
  }

  constructor(child, port) {
    this.child = child;
    this.client = new Client(port);
  }

  /** CPU microseconds that a request of the lot cost. */
  async cost(requests, accepted = true) {
    const before = await this.#cpu();
    const statuses = await this.client.send(requests);
    const after = await this.#cpu();
    const good = [...statuses].filter(([status]) => status < 300 === accepted);
    if (good.length !== statuses.size) {
      const found = [...statuses].map(([status, times]) => `${status} (${times} times)`);
      throw new Error(`answered ${found.join(', ')}`);
    }
    return (after - before) / requests.length;
  }

  stop() {
    this.client.close();
    this.child.disconnect();
  }

  async #cpu() {
    const answer = once(this.child, 'message');
    this.child.send('cpu');
    const [{ user, system }] = await answer;
    return user + system;
  }
}
