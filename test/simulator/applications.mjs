// The applications: real modules on stores and a network of the simulator.
import { Readable } from 'node:stream';
import { HttpService } from '@nestjs/axios';
import { NestFactory } from '@nestjs/core';
import {
  OnWebhookEvent,
  WebhookDeliveries,
  WebhookDeliveryEvents,
  WebhookEndpoints,
  WebhookModule,
  WebhookPublisher,
} from '../../build/lib/index.js';
import { PostgresQueue } from '../../build/lib/postgres/index.js';
import { ReplayClient } from '../../build/lib/testing/simulation/replay-server.js';
import { SimulatedClock } from '../../build/lib/testing/simulation/simulated-process.js';
import { poolOf } from './database-pool.mjs';

const SECRET = 'a-secret-for-tests-of-32-bytes-min!';
const ISSUER = 'https://a.example';
const SEALING_KEY = { id: 'simulator', key: Buffer.alloc(32, 7).toString('base64') };
/** Milliseconds of every lease: the shortest that a queue accepts, so that stalls outlive it. */
export const LEASE = 10_000;
/** Without jitter, which would not follow from the seed. */
const WAITS = Array.from({ length: 60 }, (_, index) => Math.min(1_000 * index, 20_000));
const RETRY = { attempts: WAITS.length, schedule: WAITS, jitter: 0 };

class PublisherApplication {}
class ReceiverApplication {}
class NetworkModule {}

/** @param parts - `deliveries` (table), `endpoints` (client), `transport`, `attempts`, `onDeliveryEvent` */
export async function startPublisher(process, parts) {
  const { deliveries, endpoints, transport, attempts, onDeliveryEvent } = parts;
  const httpModule = {
    module: NetworkModule,
    providers: [{ provide: HttpService, useValue: transport }],
    exports: [HttpService],
  };
  const publisher = {
    issuer: ISSUER,
    secret: SECRET,
    queue: queueOf(process, deliveries, 'deliveries'),
    endpointStore: endpoints,
    sealingKeys: [SEALING_KEY],
    retry: { ...RETRY, attempts: attempts ?? RETRY.attempts },
  };
  const app = await NestFactory.createApplicationContext(
    {
      module: PublisherApplication,
      imports: [WebhookModule.forRoot({ ...sharedOptions(process), publisher, httpModule })],
    },
    { logger: false },
  );
  app.get(WebhookDeliveryEvents).events$.subscribe(onDeliveryEvent);
  return {
    publisher: app.get(WebhookPublisher),
    deliveries: app.get(WebhookDeliveries),
    endpoints: app.get(WebhookEndpoints),
  };
}

/** The handlers of the receiving application; the world decides what they do. */
class Handlers {
  constructor(process, handle) {
    this.process = process;
    this.handle = handle;
  }

  async onEvent(_data, event) {
    await this.handle(event, this.process);
  }
}
const { onEvent } = Object.getOwnPropertyDescriptors(Handlers.prototype);
OnWebhookEvent('**')(Handlers.prototype, 'onEvent', onEvent);

/** @param parts - `replay` (server), `received` (table, or `undefined` to handle before the answer), `handle` */
export async function startReceiver(process, { replay, received, handle }) {
  const queued = received && {
    acknowledge: 'queued',
    queue: queueOf(process, received, 'received'),
    retry: RETRY,
  };
  const receiver = {
    path: 'hooks',
    issuers: [{ issuer: ISSUER, secret: SECRET }],
    replay: { store: new ReplayClient(process, replay, (tx) => tx), lease: LEASE },
    spool: false,
    ...queued,
  };
  const app = await NestFactory.create(
    {
      module: ReceiverApplication,
      imports: [WebhookModule.forRoot({ ...sharedOptions(process), receiver })],
      providers: [{ provide: Handlers, useFactory: () => new Handlers(process, handle) }],
    },
    { logger: false },
  );
  await app.init();
  const server = app.getHttpServer();
  return { receive: (webhook) => handOver(server, webhook) };
}

/** Hands a request to an HTTP server. @returns the status of its answer */
function handOver(server, { method, url, headers, body }) {
  const named = Object.entries(headers).map(([name, value]) => [name.toLowerCase(), String(value)]);
  const request = Object.assign(Readable.from(body === undefined ? [] : [Buffer.from(body)]), {
    method,
    url: new URL(url).pathname,
    headers: Object.fromEntries(named),
    rawHeaders: named.flat(),
    complete: true,
    httpVersionMajor: 1,
    socket: {},
  });
  return new Promise((resolve) => {
    const response = {
      headersSent: false,
      destroyed: false,
      setHeader() {},
      writeHead(status) {
        this.status = status;
        return this;
      },
      end() {
        this.headersSent = true;
        resolve(this.status);
      },
    };
    server.emit('request', request, response);
  });
}

function sharedOptions(process) {
  return { clock: clockOf(process), inbox: false, checkStores: false };
}

function queueOf(process, table, name) {
  return new PostgresQueue({
    pool: poolOf(process, table),
    clock: clockOf(process),
    name,
    notify: false,
    lease: LEASE,
    pollInterval: 2_000,
  });
}

function clockOf(process) {
  return new SimulatedClock(process.simulation, process);
}
