import { fork } from 'node:child_process';
import { once } from 'node:events';
import { fileURLToPath } from 'node:url';

const stdio = ['ignore', 'inherit', 'inherit', 'ipc'];

/** The receiver of all senders. */
export class Sink {
  static async start() {
    const child = fork(fileURLToPath(new URL('sink.mjs', import.meta.url)), { stdio });
    const [{ port }] = await once(child, 'message');
    return new Sink(child, port);
  }

  constructor(child, port) {
    this.child = child;
    this.port = port;
  }

  /** What came at a path: `{ requests, verified }`. */
  async seen(path) {
    this.child.send(path);
    const [counts] = await once(this.child, 'message');
    return counts;
  }

  stop() {
    this.child.disconnect();
  }
}

/** One way of sending, in a process of its own. */
export class Sender {
  /** @throws where the sink cannot verify what it sends, or does not get it */
  static async start(variant, sink, load) {
    const path = `/${variant}`;
    const url = `http://127.0.0.1:${sink.port}${path}`;
    const script = fileURLToPath(new URL('sender.mjs', import.meta.url));
    const before = await sink.seen(path);
    const child = fork(script, [variant, url, load], { stdio });
    await once(child, 'message');
    const sender = new Sender(child);
    await sender.cost(1);
    const { requests, verified } = await sink.seen(path);
    if (requests - before.requests !== 1 || verified - before.verified !== 1) {
      throw new Error(`${variant}: the sink got ${requests} requests and verified ${verified}`);
    }
    return sender;
  }

  constructor(child) {
    this.child = child;
  }

  /** CPU microseconds of the process for each of so many requests. */
  async cost(count) {
    const answer = once(this.child, 'message');
    this.child.send(count);
    const [{ cpu, fault }] = await answer;
    if (fault !== undefined) throw new Error(fault);
    return cpu / count;
  }

  stop() {
    this.child.disconnect();
  }
}
