import { once } from 'node:events';
import { connect } from 'node:net';

const END_OF_HEAD = '\r\n\r\n';
/** Reported instead of a status if the connection closed during a write, before the refusal was read. */
const CUT_OFF = Infinity;

/** Keeps several connections to a server, and sends requests one after the other on each. */
export class Client {
  #connections = [];

  constructor(port, count = 32) {
    this.port = port;
    this.count = count;
  }

  /**
   * @param requests complete requests, as bytes
   * @returns number of answers by status
   */
  async send(requests) {
    const statuses = new Map();
    const waiting = requests.values();
    const lanes = Array.from({ length: Math.min(this.count, requests.length) }, async () => {
      for (const request of waiting) {
        const connection = await this.#free();
        const { status, ended } = await connection.ask(request);
        statuses.set(status, (statuses.get(status) ?? 0) + 1);
        if (ended) connection.end();
        else this.#connections.push(connection);
      }
    });
    await awakeUntil(Promise.all(lanes));
    return statuses;
  }

  close() {
    for (const connection of this.#connections.splice(0)) connection.end();
  }

  async #free() {
    return this.#connections.pop() ?? (await Connection.open(this.port));
  }
}

/** Keeps this process awake: waking it would cost the server more CPU time than the write that does it. */
async function awakeUntil(work) {
  let isOver = false;
  const turn = () => isOver || setImmediate(turn);
  turn();
  try {
    await work;
  } finally {
    isOver = true;
  }
}

class Connection {
  #socket;
  #waiting;
  #received = '';

  static async open(port) {
    const socket = connect(port, '127.0.0.1');
    await once(socket, 'connect');
    return new Connection(socket.setNoDelay(true));
  }

  constructor(socket) {
    this.#socket = socket;
    socket.on('data', (chunk) => this.#take(chunk));
    // A server may refuse a request before it has read it; the rest of the write then fails.
    socket.on('error', () => undefined);
    socket.on('close', () => this.#waiting?.resolve({ status: CUT_OFF, ended: true }));
  }

  ask(request) {
    return new Promise((resolve) => {
      this.#waiting = { resolve };
      this.#received = '';
      this.#socket.write(request);
    });
  }

  end() {
    this.#socket.destroy();
  }

  #take(chunk) {
    this.#received += chunk.toString('latin1');
    const end = this.#received.indexOf(END_OF_HEAD);
    if (end === -1) return;
    const head = this.#received.slice(0, end);
    const length = Number(/\ncontent-length: *(\d+)/i.exec(head)?.[1] ?? 0);
    const isComplete = this.#received.length >= end + END_OF_HEAD.length + length;
    const isHead = this.#received.length === end + END_OF_HEAD.length;
    if (!isComplete && !isHead) return;
    const waiting = this.#waiting;
    this.#waiting = undefined;
    const ended = /\nconnection: *close/i.test(head) || (!isComplete && isHead && length > 0);
    waiting?.resolve({ status: Number(head.slice(9, 12)), ended });
  }
}
