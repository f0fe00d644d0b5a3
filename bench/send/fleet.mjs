import { fork } from 'node:child_process';
import { once } from 'node:events';
import { fileURLToPath } from 'node:url';
import { CERTIFICATE, LOADS } from './settings.mjs';

const stdio = ['ignore', 'inherit', 'inherit', 'ipc'];

/** The receiver of all senders. */
export class Sink {
  static async start(load) {
    const script = fileURLToPath(new URL('sink.mjs', import.meta.url));
    const scheme = LOADS[load].tls ? 'https' : 'http';
    const child = fork(script, [scheme], { stdio });
    const [{ port }] = await once(child, 'message');
    return new Sink(child, `${scheme}://127.0.0.1:${port}`);
  }

  constructor(child, origin) {
    this.child = child;
    this.origin = origin;
  }

  /** @returns the counts for a path, `{ requests, verified }` */
  async seen(path) {
    this.child.send(path);
    const [counts] = await once(this.child, 'message');
    return counts;
  }

  stop() {
    this.child.disconnect();
  }
}

/** A sender in its own process. */
export class Sender {
  /** @throws if a request does not reach the sink or cannot be verified there */
  static async start(variant, sink, load) {
    const path = `/${variant}`;
    const url = `${sink.origin}${path}`;
    const script = fileURLToPath(new URL('sender.mjs', import.meta.url));
    const before = await sink.seen(path);
    const env = { ...process.env, NODE_EXTRA_CA_CERTS: CERTIFICATE };
    const child = fork(script, [variant, url, load], { stdio, env });
    await once(child, 'message');
    const sender = new Sender(child);
    await sender.cost(1);
    const { requests, verified } = await sink.seen(path);
    if (requests - before.requests !== 1 || verified - before.verified !== 1) {
      throw new Error(
        `${variant}: the sink received ${requests} requests and verified ${verified}.`,
      );
    }
    return sender;
  }

  constructor(child) {
    this.child = child;
  }

  /** @returns CPU microseconds of the sender per request */
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
