import { fork } from 'node:child_process';
import { once } from 'node:events';
import { fileURLToPath } from 'node:url';
import { Client } from './client.mjs';

const SERVER = fileURLToPath(new URL('server.mjs', import.meta.url));

/** A server in its own process; its CPU time is read before and after each batch of requests. */
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

  /** @returns CPU microseconds of the server per request */
  async cost(requests, accepted = true) {
    const before = await this.usage();
    const statuses = await this.client.send(requests);
    const after = await this.usage();
    const good = [...statuses].filter(([status]) => status < 300 === accepted);
    if (good.length !== statuses.size) {
      const found = [...statuses].map(([status, times]) => `${status} (${times} times)`);
      throw new Error(`Unexpected answers: ${found.join(', ')}`);
    }
    return (after.cpu - before.cpu) / requests.length;
  }

  stop() {
    this.client.close();
    this.child.disconnect();
  }

  /** @returns `{ cpu, handled, handledAt }`: CPU microseconds, events handled, and when the last one was */
  async usage() {
    const answer = once(this.child, 'message');
    this.child.send('usage');
    const [{ user, system, ...handler }] = await answer;
    return { cpu: user + system, ...handler };
  }
}
