import { once } from 'node:events';
import { createServer, request as forward } from 'node:http';
import { chanceOf } from './chance.mjs';

/** Faults and their probabilities; all other requests are forwarded. */
const FATES = [
  ['lost-answer', 0.12],
  ['reset', 0.05],
  ['delay', 0.1],
];
/** Milliseconds. */
const MAX_DELAY = 200;

/** The event of the endpoint with a limit, and its attempts that may run at once. */
export const LIMITED = { event: 'chaos.e0', concurrency: 2 };

/**
 * A proxy between senders and receivers. It distributes requests over the replicas, resets connections, delays requests,
 * and drops responses. Each fault is derived from the seed, the event and the number of its request. It counts what the
 * receivers did out of order, and how many requests for the limited endpoint they had at once.
 */
export class UnreliableProxy {
  /** Ports of the running replicas. */
  replicas = new Map();
  attempts = 0;
  answersLost = 0;
  handlerFailures = 0;
  /** Events that were handled after a later one of their key. */
  outOfOrder = 0;
  mostAtOnce = 0;
  lastRequest = 0;
  /** Whether faults are switched off. */
  calm = false;
  #requests = new Map();
  #handled = new Map();
  /** The last sequence number that was handled, by event and key. */
  #sequences = new Map();
  #atOnce = 0;
  #server;

  constructor(seed) {
    this.seed = seed;
  }

  async start() {
    this.#server = createServer((request, response) => this.#pass(request, response));
    this.#server.listen(0, '127.0.0.1');
    await once(this.#server, 'listening');
    return `http://127.0.0.1:${this.#server.address().port}`;
  }

  close() {
    this.#server.close();
    this.#server.closeAllConnections();
  }

  /** Number of events that were acknowledged more than once without `webhook-duplicate`. */
  get handledTwice() {
    return [...this.#handled.values()].filter((times) => times > 1).length;
  }

  #pass(request, response) {
    const claims = claimsOf(request);
    const event = claims.txn;
    const number = (this.#requests.get(event) ?? 0) + 1;
    this.#requests.set(event, number);
    this.attempts++;
    this.lastRequest = Date.now();
    const fate = this.calm ? 'pass' : this.#fateOf(event, number);
    const wait = fate === 'delay' ? chanceOf(this.seed, 'delay', event, number) * MAX_DELAY : 0;
    if (fate === 'reset') request.socket.destroy();
    else setTimeout(() => this.#forward(request, response, { claims, number, fate }), wait);
  }

  #fateOf(event, number) {
    let chance = chanceOf(this.seed, 'fate', event, number);
    for (const [fate, share] of FATES) {
      if (chance < share) return fate;
      chance -= share;
    }
    return 'pass';
  }

  #forward(request, response, { claims, number, fate }) {
    const event = claims.txn;
    const ports = [...this.replicas.values()];
    const port = ports[Math.floor(chanceOf(this.seed, 'replica', event, number) * ports.length)];
    const abort = () => request.socket.destroy();
    if (port === undefined) return abort();
    const { method, url: path, headers } = request;
    const passed = forward({ host: '127.0.0.1', port, method, path, headers, agent: false });
    if (claims.webhook.event === LIMITED.event) {
      this.mostAtOnce = Math.max(this.mostAtOnce, ++this.#atOnce);
      passed.once('close', () => this.#atOnce--);
    }
    passed.once('response', (answer) => {
      this.#countAnswer(claims, answer);
      // The receiver has handled the event; the sender gets no response.
      if (fate === 'lost-answer') {
        if (answer.statusCode < 300) this.answersLost++;
        answer.resume();
        return abort();
      }
      response.writeHead(answer.statusCode, answer.headers);
      answer.once('error', abort);
      answer.pipe(response);
    });
    passed.once('error', abort);
    request.pipe(passed);
  }

  #countAnswer({ txn, webhook: { event, key, seq } }, { statusCode, headers }) {
    if (statusCode === 500) this.handlerFailures++;
    if (statusCode >= 300 || headers['webhook-duplicate'] !== undefined) return;
    const times = this.#handled.get(txn) ?? 0;
    this.#handled.set(txn, times + 1);
    if (key === undefined || times > 0) return;
    const line = `${event} ${key}`;
    if (seq < (this.#sequences.get(line) ?? 0)) this.outOfOrder++;
    else this.#sequences.set(line, seq);
  }

  /** Number of events that were handled in the order of a key. */
  get keys() {
    return this.#sequences.size;
  }
}

/** Reads the claims of the token, without verifying it. */
function claimsOf({ headers }) {
  const [, payload = ''] = (headers.authorization ?? '').split('.');
  return JSON.parse(Buffer.from(payload, 'base64url').toString());
}
