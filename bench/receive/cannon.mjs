import autocannon from 'autocannon';
import { PATH } from './settings.mjs';

const CONNECTIONS = 8;

/** A server whose requests come from autocannon, and are timed by the clock on the wall. */
export class Cannon {
  constructor(server) {
    this.server = server;
  }

  /**
   * @param authorizations one for each request
   * @returns microseconds from one answer to the next
   */
  async cost(authorizations) {
    const { port } = this.server.client;
    const waiting = authorizations.values();
    const setupRequest = (request) => {
      // It makes one request more for each connection than it sends.
      const authorization = waiting.next().value ?? authorizations.at(-1);
      return { ...request, headers: { ...request.headers, authorization } };
    };
    let first;
    let last;
    const run = autocannon({
      url: `http://127.0.0.1:${port}`,
      amount: authorizations.length,
      connections: CONNECTIONS,
      // Milliseconds: it ends with a sample, and one lasts a second otherwise.
      sampleInt: 20,
      requests: [{ method: 'HEAD', path: PATH, setupRequest }],
    });
    run.on('response', () => {
      last = performance.now();
      first ??= last;
    });
    const { errors, '2xx': good } = await run;
    if (errors > 0 || good !== authorizations.length) {
      throw new Error(`${good} of ${authorizations.length} requests were taken`);
    }
    return ((last - first) * 1_000) / (authorizations.length - 1);
  }

  stop() {
    this.server.stop();
  }
}
