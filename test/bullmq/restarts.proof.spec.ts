import { createServer, type Server } from 'node:http';
import type { AddressInfo } from 'node:net';
import { setTimeout as sleep } from 'node:timers/promises';
import { once } from 'node:events';
import { afterEach, describe, expect, it } from '@jest/globals';
import { ScriptProcess } from '../fixtures/child-process.mjs';
import { OwnServer, ownRedis } from '../fixtures/own-server.js';
import { ISSUER, SECRET } from '../fixtures/receiver-app.js';

/** Half of them by SIGKILL, half by SHUTDOWN; `RESTARTS=20` for the long form. */
const RESTARTS = Number(process.env['RESTARTS'] ?? 4);
/** Milliseconds that a health check may take. A frozen process never answers. */
const HEALTH_TIMEOUT = 20_000;
/** Acknowledged events between two restarts. */
const EVENTS_PER_ROUND = 50;

const program = ownRedis('always');
const describeRestarts = program === undefined ? describe.skip : describe;
if (program === undefined) {
  process.stderr.write('Skipped the tests that restart Redis: redis-server is not installed.\n');
}

/** An application in a process of its own, with the endpoints that it sends to. */
class Application {
  readonly acknowledged = new Set<string>();
  readonly arrived = new Set<string>();
  healthChecks = 0;
  private readonly process: ScriptProcess;
  private origin = '';
  private requestsToFailing = 0;
  isStopped = false;

  private constructor(
    redis: string,
    private readonly endpoints: Server,
    ready: () => void,
  ) {
    const { port } = endpoints.address() as AddressInfo;
    const settings = {
      redis,
      endpoints: `http://127.0.0.1:${port}`,
      issuer: ISSUER,
      secret: SECRET,
    };
    const script = new URL('restarts.process.mjs', import.meta.url);
    this.process = new ScriptProcess(script, settings, (word, value) => {
      if (word === 'acknowledged') this.acknowledged.add(value!);
      if (word === 'handled') this.arrived.add(value!);
      if (word === 'ready') {
        this.origin = `http://127.0.0.1:${value}`;
        ready();
      }
    });
    endpoints.on('request', (request, response) => {
      const [, path = ''] = request.url!.split('/');
      const id = eventIdOf(request.headers.authorization!);
      // Never five in a row: those would open the endpoint's circuit, and every rest makes the test minutes longer.
      const isRefused = path === 'failing' && ++this.requestsToFailing % 3 === 0;
      setTimeout(
        () => {
          if (!isRefused) this.arrived.add(id);
          response.writeHead(isRefused ? 500 : 204).end();
        },
        path === 'slow' ? 300 : 0,
      );
    });
  }

  static async start(redis: string): Promise<Application> {
    const endpoints = createServer().listen(0, '127.0.0.1');
    await once(endpoints, 'listening');
    let application: Application;
    await new Promise<void>((resolve) => {
      application = new Application(redis, endpoints, resolve);
    });
    return application!;
  }

  /** Acknowledged events that have not arrived. */
  get outstanding(): string[] {
    return [...this.acknowledged].filter((id) => !this.arrived.has(id));
  }

  /** Asks the process for its health until it is stopped; rejects if it does not answer. */
  async watchHealth(): Promise<void> {
    while (!this.isStopped) {
      const signal = AbortSignal.timeout(HEALTH_TIMEOUT);
      const response = await fetch(`${this.origin}/health`, { signal });
      expect(await response.text()).toBe('ok');
      this.healthChecks++;
      await sleep(50);
    }
  }

  async untilAcknowledged(count: number): Promise<void> {
    while (this.acknowledged.size < count && !this.isStopped) await sleep(20);
  }

  async untilArrived(): Promise<void> {
    this.process.send('stop publishing');
    while (this.outstanding.length > 0 && !this.isStopped) await sleep(50);
  }

  async stop(): Promise<void> {
    this.isStopped = true;
    await this.process.kill();
    this.endpoints.closeAllConnections();
    this.endpoints.close();
  }
}

function eventIdOf(authorization: string): string {
  const [, payload = ''] = authorization.split('.');
  return (JSON.parse(Buffer.from(payload, 'base64url').toString()) as { txn: string }).txn;
}

describeRestarts('an application on BullMQ whose Redis restarts', () => {
  const cleanUp: (() => Promise<void>)[] = [];
  afterEach(async () => {
    for (const clean of cleanUp.splice(0).toReversed()) await clean();
  });

  it(
    `answers HTTP and delivers every acknowledged event over ${RESTARTS} restarts`,
    async () => {
      const server = await OwnServer.start(program!);
      cleanUp.push(async () => server.remove());
      const application = await Application.start(server.url);
      cleanUp.push(async () => application.stop());

      const restartAndDeliver = async (): Promise<void> => {
        for (let restart = 0; restart < RESTARTS && !application.isStopped; restart++) {
          await application.untilAcknowledged(application.acknowledged.size + EVENTS_PER_ROUND);
          await (restart % 2 === 0 ? server.kill() : server.shutDown());
          await sleep(500 + Math.random() * 1_000);
          await server.restart();
        }
        await application.untilAcknowledged(application.acknowledged.size + EVENTS_PER_ROUND);
        await application.untilArrived();
      };
      // Health checks end only by failing: the race rejects as soon as the process stops answering.
      await Promise.race([restartAndDeliver(), application.watchHealth()]);

      expect(application.outstanding).toEqual([]);
      expect(application.acknowledged.size).toBeGreaterThan(RESTARTS * EVENTS_PER_ROUND);
      expect(application.healthChecks).toBeGreaterThan(RESTARTS);
    },
    240_000 + RESTARTS * 40_000,
  );
});
