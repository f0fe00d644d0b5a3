import { once } from 'node:events';
import { createServer } from 'node:http';
import { text } from 'node:stream/consumers';

/**
 * A PGlite database outside the killed processes, for machines without a PostgreSQL server. Each statement is an HTTP
 * request; transactions are not supported.
 */
export class HostedDatabase {
  #pglite;
  #server;

  static async start() {
    const { PGlite } = await import('@electric-sql/pglite');
    const database = new HostedDatabase();
    database.#pglite = await PGlite.create();
    database.#server = createServer((request, response) => {
      void database.#answer(request, response);
    });
    database.#server.listen(0, '127.0.0.1');
    await once(database.#server, 'listening');
    return database;
  }

  get url() {
    return `http://127.0.0.1:${this.#server.address().port}`;
  }

  async #answer(request, response) {
    try {
      const { statement, values } = JSON.parse(await text(request));
      const { rows } = await this.#pglite.query(statement, values);
      response.end(JSON.stringify({ rows }));
    } catch (error) {
      response.writeHead(500).end(JSON.stringify({ message: error.message }));
    }
  }

  async close() {
    this.#server.close();
    this.#server.closeAllConnections();
    await this.#pglite.close();
  }
}

/** A client of a {@link HostedDatabase} with the part of node-postgres's Pool that the test needs. */
export class HostedClient {
  constructor(url) {
    this.url = url;
  }

  async query(statement, values = []) {
    const body = JSON.stringify({ statement, values });
    const answer = await fetch(this.url, { method: 'POST', body });
    const result = await answer.json();
    if (!answer.ok) throw new Error(result.message);
    return result;
  }

  async end() {}
}
