import { once } from 'node:events';
import { connect } from 'node:net';

const END_OF_HEAD = '\r\n\r\n';
/** In place of a status: a refusal was lost with its connection, which the sender was still writing to. */
const CUT_OFF = Infinity;

/** Keeps some connections to a server and sends requests down them, one after the other on each. */
export class Client {
  #connections = [];

  constructor(port, count = 32) {
    this.port = port;
    this.count = count;
  }

  /**
   * @param requests whole requests, as bytes
   * @returns how often each status came
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

/** Keeps this process from sleeping: to wake it up costs more than the write that does it, and would count as the server's. */
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
    // The server may refuse before it has read everything, and what was still to be written is lost then.
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
