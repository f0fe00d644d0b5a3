// The applications: real modules on stores and a network of the simulator.
import { HttpService } from '@nestjs/axios';
import { NestFactory } from '@nestjs/core';
import {
  OnWebhookEvent,
  WebhookDeliveries,
  WebhookEndpoints,
  WebhookModule,
  WebhookPublisher,
} from 'nestjs-webhook-token';
import { PostgresQueue } from 'nestjs-webhook-token/postgres';
import { poolOf } from './database-pool.mjs';
import { handOver } from './network.mjs';
import { ProcessClock } from './processes.mjs';
import { ReplayClient } from './replay-server.mjs';

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

/** @param parts - `deliveries` (table), `endpoints` (client), `transport`, `attempts` */
export async function startPublisher(process, { deliveries, endpoints, transport, attempts }) {
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
    replay: { store: new ReplayClient(process, replay), lease: LEASE },
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
  return { receive: (webhook, onStatus) => handOver(server, webhook, onStatus) };
}

function sharedOptions(process) {
  return { clock: new ProcessClock(process), inbox: false, checkStores: false };
}

function queueOf(process, table, name) {
  return new PostgresQueue({
    pool: poolOf(process, table),
    clock: new ProcessClock(process),
    name,
    notify: false,
    lease: LEASE,
    pollInterval: 2_000,
  });
}
