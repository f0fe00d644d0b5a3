import { connect } from 'node:net';
import { once } from 'node:events';

const END_OF_HEAD = Buffer.from('\r\n\r\n');

/** Keeps some connections to a server and sends requests down them, one after the other on each. */
export class Client {
  #sockets = [];

  constructor(port, connections = 8) {
    this.port = port;
    this.connections = connections;
  }

  /**
   * @param requests whole requests, as bytes; their answers have no body
   * @returns how often each status came
   */
  async send(requests) {
    while (this.#sockets.length < this.connections) {
      const socket = connect(this.port, '127.0.0.1');
      await once(socket, 'connect');
      socket.setNoDelay(true);
      this.#sockets.push(socket);
    }
    const statuses = new Map();
    const waiting = requests.values();
    await Promise.all(this.#sockets.map((socket) => sendAlong(socket, waiting, statuses)));
    return statuses;
  }

  close() {
    for (const socket of this.#sockets.splice(0)) socket.destroy();
  }
}

function sendAlong(socket, requests, statuses) {
  return new Promise((resolve, reject) => {
    const next = () => {
      const { done, value } = requests.next();
      if (!done) return socket.write(value);
      socket.off('data', onData).off('close', onClose);
      resolve();
    };
    const onClose = () => reject(new Error('the server closed a connection'));
    const onData = (chunk) => {
      if (chunk.indexOf(END_OF_HEAD) === -1) return reject(new Error('an answer came in pieces'));
      const status = Number(chunk.latin1Slice(9, 12));
      statuses.set(status, (statuses.get(status) ?? 0) + 1);
      next();
    };
    socket.on('data', onData).on('close', onClose);
    next();
  });
}
