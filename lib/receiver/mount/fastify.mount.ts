import type { IncomingMessage, ServerResponse } from 'node:http';
import type { HttpServer } from '@nestjs/common';
import type { ConfigurationFault } from '../../errors/webhook.error.js';
import { OTHER_METHODS, type AdapterMount, type NodeHandler } from './adapter-mount.js';
import { shieldBody, unshieldBody } from './body-shield.js';
import { comesAfterLastRequest, endsInDispute, makeLastRequest } from './last-request.js';
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

/** A route's options, as far as they are touched here. */
interface RouteOptions {
  method: string | string[];
  url: string;
  preParsing?: ParsingHook | ParsingHook[] | undefined;
  preValidation?: RequestHook | RequestHook[] | undefined;
}

/** Fastify's instance, as far as it is used here: the package does not depend on Fastify. */
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
 * Fastify: a mounted path is a route whose request hook takes Node's request over, before any parser;
 * a webhook route of the application gets hooks around the parsing that hide its body.
 */
export class FastifyMount implements AdapterMount {
  private readonly instance: FastifyInstance;
  /** The paths that are ours, as their routes spell them. */
  private readonly paths = new Set<string>();

  constructor(adapter: HttpServer) {
    this.instance = adapter.getInstance() as FastifyInstance;
  }

  shieldRoutes(recorder: RouteRecorder): void {
    this.instance.addHook('onRequest', (request, reply, done) => {
      const { raw } = request;
      if (comesAfterLastRequest(raw)) return reply.hijack();
      if (endsInDispute(raw) && this.paths.has(request.routeOptions.url ?? '')) {
        makeLastRequest(raw, reply.raw);
      }
      done();
    });
    // The hook runs within the registration of a route, so the one being registered is the one it sees.
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
    // Fastify's router refuses two routes for one method and path, and prefers the more specific one.
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
