import { createHash, createHmac, randomBytes, timingSafeEqual } from 'node:crypto';
import { once } from 'node:events';
import type { IncomingMessage, Server, ServerResponse } from 'node:http';
import type { AddressInfo } from 'node:net';
import {
  type CanActivate,
  type DynamicModule,
  type ExecutionContext,
  HttpException,
  type LoggerService,
} from '@nestjs/common';
import { NestFactory } from '@nestjs/core';
import { SystemClock, WebhookClock } from '../clock/webhook-clock.js';
import { WebhookDeliveries } from '../deliveries/webhook.deliveries.js';
import { WebhookDeliveryEvents } from '../deliveries/webhook-delivery.events.js';
import { EndpointRegistry } from '../endpoints/endpoint.registry.js';
import type { EndpointFormat, EndpointScope } from '../endpoints/webhook-endpoint.interface.js';
import { WebhookEndpoints } from '../endpoints/webhook.endpoints.js';
import { WebhookDeliveryError } from '../errors/webhook.error.js';
import { Problems } from '../options/problems.js';
import { readOptions } from '../options/read-options.js';
import {
  PostgresQueue,
  PostgresEndpointStore,
  PostgresInboxStore,
  type PostgresPool,
} from '../postgres/index.js';
import { resolvePublisherOptions } from '../publisher/publisher-options.resolver.js';
import { INBOX, resolveInbox } from '../receiver/inbox/inbox-options.js';
import { InboxRecorder } from '../receiver/inbox/inbox.recorder.js';
import { WebhookInbox } from '../receiver/inbox/webhook.inbox.js';
import { resolveReceivers } from '../receiver/receiver-options.resolver.js';
import type { ConsoleCapability } from './console-api.js';
import { problemOf, ConsoleError } from './console-problem.js';
import { WebhookConsoleModule } from './webhook-console.module.js';

/** What a console without its application shows, and to whom. */
export interface StandaloneOptions {
  readonly pool: PostgresPool;
  readonly schema: string;
  /** Name of the publisher's queue. */
  readonly queue: string;
  /** Names of queues with dead letters. */
  readonly receiverQueues: readonly string[];
  readonly capabilities: readonly ConsoleCapability[];
  readonly actor: string | undefined;
  /** Opens the page, in the fragment of its URL: `#token=…`. */
  readonly token: string;
  readonly logger: LoggerService;
}

/** A console that does not listen yet. */
export interface StandaloneConsole {
  /**
   * @returns the port
   * @throws the error of the server, such as EADDRINUSE
   */
  listen(port: number, host: string): Promise<number>;
  close(): Promise<void>;
}

/** Where the page is; ends with a slash. */
export const CONSOLE_PATH = '/console/';

/** Milliseconds that a shutdown grants the queues. */
const SHUTDOWN_TIME = 2_000;

/**
 * Creates a console on the stores alone. It attempts no delivery: it has neither the keys of the application nor a consumer of its
 * queue.
 */
export async function createStandaloneConsole(
  options: StandaloneOptions,
): Promise<StandaloneConsole> {
  const { ExpressAdapter } = await import('@nestjs/platform-express');
  const stores = new StandaloneStores(options);
  const { capabilities, actor, token, logger } = options;
  const root: DynamicModule = {
    module: class StandaloneModule {},
    imports: [
      WebhookConsoleModule.forRoot({
        path: CONSOLE_PATH,
        capabilities,
        actor: () => actor,
        // The application deletes old activity; this console changes nothing by itself.
        activity: { keepFor: '3650d' },
        guards: [new LoginGuard(token)],
        imports: [stores.module],
      }),
    ],
  };
  const app = await NestFactory.create(root, new ExpressAdapter(), {
    logger,
    abortOnError: false,
    forceCloseConnections: true,
  });
  const adapter = app.getHttpAdapter();
  adapter.get('/', (_request: unknown, response: unknown) =>
    adapter.redirect(response, 302, CONSOLE_PATH),
  );
  await app.init();
  return {
    async listen(port, host) {
      const server = app.getHttpServer() as Server;
      await once(server.listen(port, host), 'listening');
      return (server.address() as AddressInfo).port;
    },
    async close() {
      await app.close();
      await stores.close();
    },
  };
}

/** The services of the library that the console needs, on the stores of an application. */
class StandaloneStores {
  readonly module: DynamicModule;
  private readonly clock = new SystemClock();
  private readonly queues: readonly PostgresQueue[];

  constructor({ pool, schema, queue, receiverQueues }: StandaloneOptions) {
    const { clock } = this;
    const store = { schema, clock };
    const open = (name: string): PostgresQueue =>
      new PostgresQueue({ pool, schema, name, migrate: false });
    const publisherQueue = open(queue);
    const queuesOfReceivers = receiverQueues.map(open);
    this.queues = [publisherQueue, ...queuesOfReceivers];
    // Options need a key. Nothing is ever signed, verified or sealed with this one.
    const keys = { issuer: 'urn:nestjs-webhook-token:console', secret: unusedKey() };
    const problems = new Problems();
    const publisher = resolvePublisherOptions(
      {
        ...keys,
        queue: publisherQueue,
        endpointStore: new PostgresEndpointStore(pool, store),
        sealingKeys: [{ id: 'console', key: unusedKey() }],
      },
      { clock, production: false },
      problems,
    );
    const receivers = resolveReceivers(
      queuesOfReceivers.length === 0
        ? { issuers: [keys] }
        : queuesOfReceivers.map((received, index) => ({
            name: receiverQueues[index]!,
            path: `queue-${index}`,
            issuers: [keys],
            acknowledge: 'queued' as const,
            queue: received,
          })),
      { clock },
      problems,
    );
    problems.throwIfAny();
    const recorded = readOptions(INBOX, { store: new PostgresInboxStore(pool, store) }, 'inbox');
    const inbox = resolveInbox(recorded, clock);
    const endpoints = publisher.resolved!;
    const providers = [
      {
        provide: WebhookDeliveries,
        useValue: new WebhookDeliveries(
          publisherQueue,
          clock,
          endpoints.endpointLimits.redeliveriesPerMinute,
        ),
      },
      {
        provide: WebhookEndpoints,
        useValue: new StandaloneEndpoints(
          endpoints,
          new EndpointRegistry(endpoints),
          KEYLESS,
          publisherQueue,
        ),
      },
      {
        provide: WebhookInbox,
        useValue: new WebhookInbox(receivers, new InboxRecorder(inbox)),
      },
      { provide: WebhookClock, useValue: clock },
      { provide: WebhookDeliveryEvents, useValue: new WebhookDeliveryEvents() },
    ];
    this.module = {
      module: class StandaloneStoresModule {},
      providers,
      exports: providers.map(({ provide }) => provide),
    };
  }

  async close(): Promise<void> {
    const deadline = this.clock.now() + SHUTDOWN_TIME;
    await Promise.all(this.queues.map(async (queue) => queue.stop(deadline)));
  }
}

/** Without the options of the application, which endpoints without a format of their own are signed by. */
class StandaloneEndpoints extends WebhookEndpoints {
  override async format(id: string, scope?: EndpointScope): Promise<EndpointFormat> {
    const { settings } = await this.get(id, scope);
    if (settings.profile !== undefined) return super.format(id, scope);
    throw new WebhookDeliveryError(
      'unsupported_option',
      'The endpoint has the format of the application, which this console does not know.',
    );
  }
}

/** In place of the sender, which signs. */
const KEYLESS = {
  attempt: async (): Promise<never> => {
    throw new WebhookDeliveryError(
      'unsupported_option',
      'This console has no key to sign a test event with; send it from the application.',
    );
  },
};

function unusedKey(): string {
  return randomBytes(32).toString('base64');
}

/** The members of a request and a response of Express that are used. */
type LoginRequest = IncomingMessage & { readonly body?: { readonly token?: unknown } };

/**
 * Lets everyone load the page, which holds no data, and requires a session for the API. The page exchanges the token in its
 * fragment for the session, as in the portal.
 */
class LoginGuard implements CanActivate {
  /** Another value than the token, which is not left in the browser. */
  private readonly session: string;

  constructor(private readonly token: string) {
    const purpose = 'nestjs-webhook-token console session';
    this.session = createHmac('sha256', token).update(purpose).digest('base64url');
  }

  canActivate(context: ExecutionContext): boolean {
    const http = context.switchToHttp();
    const request = http.getRequest<LoginRequest>();
    const [path] = (request.url ?? '').split(/[?#]/);
    if (!/\/api(?:\/|$)/i.test(path!)) return true;
    // Cookies are shared by all ports of a host.
    const cookie = `webhook-console-${request.socket.localPort}=`;
    if (path === `${CONSOLE_PATH}api/session` && request.method === 'POST') {
      if (!isSame(request.body?.token, this.token)) {
        throw refusal(
          'link_invalid',
          'The token is wrong. Open the link of the command that runs now.',
        );
      }
      const attributes = 'Path=/; HttpOnly; SameSite=Strict';
      http
        .getResponse<ServerResponse>()
        .setHeader('Set-Cookie', `${cookie}${this.session}; ${attributes}`);
      // The exchange is answered like a query of the session that it opens.
      request.method = 'GET';
      return true;
    }
    // Another path or subdomain may have set a cookie with the same name, but cannot know the session.
    const cookies = request.headers.cookie?.split(/;\s*/) ?? [];
    if (cookies.some((one) => isSame(one, `${cookie}${this.session}`))) return true;
    throw refusal('session_required', 'Open the link that the command has printed.');
  }
}

function refusal(code: 'link_invalid' | 'session_required', detail: string): HttpException {
  const { problem } = problemOf(new ConsoleError(code, detail));
  return new HttpException(problem, problem.status);
}

/** Compares in a time that does not depend on where the strings differ. */
function isSame(given: unknown, expected: string): boolean {
  if (typeof given !== 'string') return false;
  const [a, b] = [given, expected].map((one) => createHash('sha256').update(one).digest());
  return timingSafeEqual(a!, b!);
}
