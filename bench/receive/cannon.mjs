import autocannon from 'autocannon';
import { PATH } from './settings.mjs';

const CONNECTIONS = 8;

/** A server with autocannon as its client; it measures wall time. */
export class Cannon {
  constructor(server) {
    this.server = server;
  }

  /**
   * @param authorizations values of the Authorization header, one for each request
   * @returns average microseconds between two answers
   */
  async cost(authorizations) {
    const { port } = this.server.client;
    const waiting = authorizations.values();
    const setupRequest = (request) => {
      // autocannon builds one request more for each connection than it sends.
      const authorization = waiting.next().value ?? authorizations.at(-1);
      return { ...request, headers: { ...request.headers, authorization } };
    };
    let first;
    let last;
    const run = autocannon({
      url: `http://127.0.0.1:${port}`,
      amount: authorizations.length,
      connections: CONNECTIONS,
      // Milliseconds. A run ends with a sample; the default sample takes a second.
      sampleInt: 20,
      requests: [{ method: 'HEAD', path: PATH, setupRequest }],
    });
    run.on('response', () => {
      last = performance.now();
      first ??= last;
    });
    const { errors, '2xx': good } = await run;
    if (errors > 0 || good !== authorizations.length) {
      throw new Error(`The server accepted ${good} of ${authorizations.length} requests.`);
    }
    return ((last - first) * 1_000) / (authorizations.length - 1);
  }

  stop() {
    this.server.stop();
  }
}
