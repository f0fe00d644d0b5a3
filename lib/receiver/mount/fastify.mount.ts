import type { IncomingMessage, ServerResponse } from 'node:http';
import type { HttpServer } from '@nestjs/common';
import { readRoute } from '../handlers/handler-metadata.js';
import { BodyShield, shieldBody, unshieldBody } from './body-shield.js';
import {
  MountedPaths,
  OTHER_METHODS,
  type AdapterMount,
  type MountedPath,
  type NodeHandler,
} from './mounted-paths.js';

interface FastifyRequest {
  readonly raw: IncomingMessage;
}

interface FastifyReply {
  readonly raw: ServerResponse;
  hijack(): void;
}

type RequestHook = (request: FastifyRequest, reply: FastifyReply, done: () => void) => void;
type ParsingHook = (
  request: FastifyRequest,
  reply: FastifyReply,
  payload: unknown,
  done: (error: null, payload: unknown) => void,
) => void;

interface RouteOptions {
  readonly handler: object;
  preParsing?: ParsingHook | ParsingHook[] | undefined;
}

/** The part of Fastify's instance that is used here, since the package does not depend on Fastify. */
interface FastifyInstance {
  addHook(name: 'onRequest' | 'preValidation', hook: RequestHook): void;
  addHook(name: 'preParsing', hook: ParsingHook): void;
  addHook(name: 'onRoute', hook: (route: RouteOptions) => void): void;
  hasRoute(route: { method: string; url: string }): boolean;
  route(options: {
    method: string[];
    url: string;
    exposeHeadRoute: boolean;
    onRequest: RequestHook;
    handler: () => void;
  }): void;
}

/**
 * Mounts receivers on Fastify by a route, whose onRequest hook takes Node's request over before any parser. It answers the requests
 * that {@link MountedPaths.attach} cannot see: those of `inject()` and of serverless adapters, behind the onRequest hooks of the root
 * instance.
 */
export class FastifyMount implements AdapterMount {
  readonly paths = new MountedPaths({ caseSensitive: true, strict: true });
  readonly shield = new BodyShield();
  private readonly instance: FastifyInstance;

  constructor(adapter: HttpServer) {
    this.instance = adapter.getInstance() as FastifyInstance;
    this.instance.addHook('onRequest', ({ raw }, reply, done) => {
      if (this.paths.screen(raw, reply.raw)) done();
      else reply.hijack();
    });
    // Nest copies the metadata of a method to the handler of its route, so that a `@WebhookRoute()` is recognised.
    this.instance.addHook('onRoute', (route) => {
      if (readRoute(route.handler) !== undefined) {
        route.preParsing = [shieldRoute, ...[route.preParsing ?? []].flat()];
      }
    });
    this.instance.addHook('preParsing', ({ raw }, _reply, payload, done) => {
      this.shield.hide(raw, () => done(null, payload));
    });
    this.instance.addHook('preValidation', ({ raw }, _reply, done) => {
      unshieldBody(raw);
      done();
    });
  }

  mount(mounted: MountedPath): string | undefined {
    const { path: url, methods, answer, refuse } = mounted;
    const taken = methods.filter((method) => this.instance.hasRoute({ method, url }));
    if (taken.length > 0) {
      const getAnswersHead = taken.includes('HEAD') ? ' (a GET route answers HEAD too)' : '';
      return `${taken.join(' and ')}${getAnswersHead}`;
    }
    this.paths.add(mounted);
    this.takeOver(methods, url, answer);
    const free = OTHER_METHODS.filter((method) => !this.instance.hasRoute({ method, url }));
    if (free.length > 0) this.takeOver(free, url, refuse);
    return undefined;
  }

  private takeOver(methods: readonly string[], url: string, handler: NodeHandler): void {
    this.instance.route({
      method: [...methods],
      url,
      exposeHeadRoute: false,
      onRequest: ({ raw }, reply) => {
        reply.hijack();
        handler(raw, reply.raw);
      },
      handler: () => undefined,
    });
  }
}

const shieldRoute: ParsingHook = ({ raw }, _reply, payload, done) => {
  shieldBody(raw);
  done(null, payload);
};
