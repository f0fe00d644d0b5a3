import type { IncomingMessage, ServerResponse } from 'node:http';
import type { HttpServer } from '@nestjs/common';
import type { ConfigurationFault } from '../../errors/webhook.error.js';
import { OTHER_METHODS, type AdapterMount, type NodeHandler } from './adapter-mount.js';
import { shieldBody, unshieldBody } from './body-shield.js';
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
 * Mounts receivers on Fastify. A mounted path is a route whose onRequest hook takes Node's request over before any parser. A webhook
 * route of the application gets hooks before and after parsing that hide its body.
 */
export class FastifyMount implements AdapterMount {
  private readonly instance: FastifyInstance;
  /** Mounted paths and webhook routes, as their routes spell them. */
  private readonly paths = new Set<string>();

  constructor(adapter: HttpServer) {
    this.instance = adapter.getInstance() as FastifyInstance;
  }

  interceptRequests(recorder: RouteRecorder): void {
    this.instance.addHook('onRequest', (request, reply, done) => {
      const { raw } = request;
      if (isAfterConnectionEnd(raw)) return reply.hijack();
      if (hasAmbiguousLength(raw) && this.paths.has(request.routeOptions.url ?? '')) {
        endConnectionAfter(raw, reply.raw);
      }
      done();
    });
    // This hook runs during the registration of a route, so `registering` is that route.
    this.instance.addHook('onRoute', (options) => {
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
    this.takeOver(['HEAD', 'POST'], path, handler);
    this.paths.add(path);
    return undefined;
  }

  refuseOtherMethods(path: string, handler: NodeHandler): void {
    const free = OTHER_METHODS.filter((method) => !this.instance.hasRoute({ method, url: path }));
    if (free.length > 0) this.takeOver(free, path, handler);
  }

  shadowedRoutes(): ConfigurationFault[] {
    // Fastify refuses two routes for one method and path, and prefers the more specific path.
    return [];
  }

  private takeOver(methods: readonly string[], path: string, handler: NodeHandler): void {
    this.instance.route({
      method: [...methods],
      url: path,
      exposeHeadRoute: false,
      onRequest: (request, reply) => {
        reply.hijack();
        handler(request.raw, reply.raw);
      },
      handler: () => undefined,
    });
  }
}

function list<T>(value: T | T[] | undefined): T[] {
  if (value === undefined) return [];
  return Array.isArray(value) ? value : [value];
}
