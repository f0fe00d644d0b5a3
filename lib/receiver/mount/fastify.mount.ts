import type { IncomingMessage, ServerResponse } from 'node:http';
import type { HttpServer, Logger } from '@nestjs/common';
import type { ConfigurationProblem } from '../../errors/webhook.error.js';
import { OTHER_METHODS, type AdapterMount, type NodeHandler } from './adapter-mount.js';
import { shieldBody, unshieldBody } from './body-shield.js';
import { FastifyBypass } from './fastify.bypass.js';
import { isAfterConnectionEnd, hasAmbiguousLength, endConnectionAfter } from './last-request.js';
import type { RouteRecorder } from './route-recorder.js';

type Done = () => void;
type RequestHook = (request: FastifyRequest, reply: FastifyReply, done: Done) => void;
type ParsingHook = (request: FastifyRequest, reply: unknown, payload: unknown, done: Done) => void;

interface FastifyRequest {
  readonly raw: IncomingMessage;
  readonly routeOptions: { readonly url?: string | undefined };
}

interface FastifyReply {
  readonly raw: ServerResponse;
  hijack(): void;
}

/** The route options that are used here. */
interface RouteOptions {
  method: string | string[];
  url: string;
  preParsing?: ParsingHook | ParsingHook[] | undefined;
  preValidation?: RequestHook | RequestHook[] | undefined;
  readonly onRequest?: unknown;
}

/** The part of Fastify's instance that is used here, since the package does not depend on Fastify. */
interface FastifyInstance {
  addHook(name: 'onRoute', hook: (options: RouteOptions) => void): void;
  addHook(name: 'onRequest', hook: RequestHook): void;
  hasRoute(route: { method: string; url: string }): boolean;
  route(
    options: RouteOptions & {
      exposeHeadRoute?: boolean;
      onRequest: RequestHook;
      handler: () => void;
    },
  ): void;
}

/**
 * Mounts receivers on Fastify. A mounted path is a route whose onRequest hook takes Node's request over before any parser; its requests
 * reach it by the {@link FastifyBypass} if nothing of the application must see them. A webhook route of the application gets hooks before
 * and after parsing that hide its body.
 */
export class FastifyMount implements AdapterMount {
  private readonly instance: FastifyInstance;
  /** Mounted paths and webhook routes, as their routes spell them. */
  private readonly paths = new Set<string>();

  /** The options of the route that was registered last, which onRoute hooks of plugins may still change. */
  private lastRoute: RouteOptions | undefined;
  private readonly bypass: FastifyBypass;

  constructor(adapter: HttpServer, logger: Logger) {
    this.instance = adapter.getInstance() as FastifyInstance;
    const report = (obstacle: string): void =>
      logger.debug(
        `Webhooks are routed by Fastify, which is slower than answering them first: ${obstacle}`,
      );
    this.bypass = new FastifyBypass(
      adapter,
      adapter.getInstance(),
      new Set([this.onRequest]),
      report,
    );
  }

  private readonly onRequest: RequestHook = (request, reply, done) => {
    const { raw } = request;
    if (isAfterConnectionEnd(raw)) return reply.hijack();
    if (hasAmbiguousLength(raw) && this.paths.has(request.routeOptions.url ?? '')) {
      endConnectionAfter(raw, reply.raw);
    }
    done();
  };

  interceptRequests(recorder: RouteRecorder): void {
    this.bypass.install();
    this.instance.addHook('onRequest', this.onRequest);
    // This hook runs during the registration of a route, so `registering` is that route.
    this.instance.addHook('onRoute', (options) => {
      this.lastRoute = options;
      if (recorder.registering === undefined) return;
      this.paths.add(options.url);
      options.preParsing = [
        ({ raw }, _reply, _payload, done) => {
          shieldBody(raw);
          done();
        },
        ...list(options.preParsing),
      ];
      options.preValidation = [
        ({ raw }, _reply, done) => {
          unshieldBody(raw);
          done();
        },
        ...list(options.preValidation),
      ];
    });
  }

  mount(path: string, handler: NodeHandler): string | undefined {
    const taken = (['HEAD', 'POST'] as const).filter((method) =>
      this.instance.hasRoute({ method, url: path }),
    );
    if (taken.length > 0) {
      const getAnswersHead = taken.includes('HEAD') ? ' (a GET route answers HEAD too)' : '';
      return `${taken.join(' and ')}${getAnswersHead}`;
    }
    const hook = this.takeOver(['HEAD', 'POST'], path, handler);
    this.bypass.add(path, { handler, hook, route: this.lastRoute! });
    this.paths.add(path);
    return undefined;
  }

  refuseOtherMethods(path: string, handler: NodeHandler): void {
    const free = OTHER_METHODS.filter((method) => !this.instance.hasRoute({ method, url: path }));
    if (free.length > 0) this.takeOver(free, path, handler);
  }

  shadowedRoutes(): ConfigurationProblem[] {
    // Fastify refuses two routes for one method and path, and prefers the more specific path.
    return [];
  }

  /** @returns the onRequest hook of the route */
  private takeOver(methods: readonly string[], path: string, handler: NodeHandler): RequestHook {
    const hook: RequestHook = (request, reply) => {
      reply.hijack();
      handler(request.raw, reply.raw);
    };
    this.instance.route({
      method: [...methods],
      url: path,
      exposeHeadRoute: false,
      onRequest: hook,
      handler: () => undefined,
    });
    return hook;
  }
}

function list<T>(value: T | T[] | undefined): T[] {
  if (value === undefined) return [];
  return Array.isArray(value) ? value : [value];
}
