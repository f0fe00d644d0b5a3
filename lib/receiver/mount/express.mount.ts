import type { IncomingMessage, ServerResponse } from 'node:http';
import type { HttpServer } from '@nestjs/common';
import type { ConfigurationFault } from '../../errors/webhook.error.js';
import { OTHER_METHODS, type AdapterMount, type NodeHandler } from './adapter-mount.js';
import { shieldBody } from './body-shield.js';
import { comesAfterLastRequest, endsInDispute, makeLastRequest } from './last-request.js';
import {
  pathMatcher,
  type PathMatcher,
  type RouterSettings,
  type RouteRecorder,
} from './route-recorder.js';

type Next = () => void;

/** Express's application, as far as it is used here: the package does not depend on Express. A work-alike may lack any of it. */
interface ExpressInstance {
  handle?: (request: IncomingMessage, response: ServerResponse, next?: Next) => void;
  readonly router?: { readonly stack?: readonly unknown[] };
}

/** What Nest's adapter runs for every request, ahead of everything, where an application has set it. */
interface RequestHooks {
  readonly onRequestHook?: unknown;
  readonly onResponseHook?: unknown;
  readonly setOnRequestHook?: unknown;
}

/** A target that is nothing but a path, as most are. */
const PLAIN_PATH = /^\/[^?#]*$/;

/**
 * Express: one middleware ahead of everything. It answers mounted paths by itself, and shields the body
 * of a request that the router is going to hand to a webhook route.
 *
 * Where nothing of the application lies ahead of that middleware, mounted paths are answered before Express begins. It gives
 * requests and responses other prototypes, and from then on Node's own work on them is slow: half of what a
 * mounted receiver cost (benchmark `receive`).
 */
export class ExpressMount implements AdapterMount {
  private readonly mounted: { matches: PathMatcher; handler: NodeHandler }[] = [];

  constructor(
    private readonly adapter: HttpServer,
    private readonly settings: RouterSettings,
  ) {}

  shieldRoutes(recorder: RouteRecorder): void {
    this.answerAheadOfExpress();
    this.adapter.use((request: IncomingMessage, response: ServerResponse, next: Next) => {
      if (this.takes(request, response)) return;
      const { method } = request;
      if (!isWebhookMethod(method)) return next();
      if (recorder.leadsToWebhook(method, pathOf(request.url ?? '/'), request)) {
        if (endsInDispute(request)) makeLastRequest(request, response);
        shieldBody(request);
      }
      next();
    });
  }

  private answerAheadOfExpress(): void {
    const instance = this.adapter.getInstance() as ExpressInstance;
    const hooks = this.adapter as RequestHooks;
    const ofNest = typeof hooks.setOnRequestHook === 'function' ? 1 : 0;
    const ahead = instance.router?.stack?.length ?? Infinity;
    // An instance that the application made may have middleware, which is to see every request.
    if (ahead > ofNest || instance.handle === undefined) return;
    const handle = instance.handle.bind(instance);
    instance.handle = (request, response, next) => {
      const isHooked = hooks.onRequestHook !== undefined || hooks.onResponseHook !== undefined;
      if (isHooked || !this.takes(request, response)) handle(request, response, next);
    };
  }

  /** Answers a request for a mounted path, and leaves one alone that must not be answered. */
  private takes(request: IncomingMessage, response: ServerResponse): boolean {
    if (comesAfterLastRequest(request)) return true;
    if (this.mounted.length === 0 || !isWebhookMethod(request.method)) return false;
    const path = pathOf(request.url ?? '/');
    const handler = this.mounted.find(({ matches }) => matches(path))?.handler;
    if (handler === undefined) return false;
    if (endsInDispute(request)) makeLastRequest(request, response);
    handler(request, response);
    return true;
  }

  mount(path: string, handler: NodeHandler, recorder: RouteRecorder): string | undefined {
    const matches = pathMatcher(path, this.settings);
    // Mounted paths come first on Express: the application's route would never be called. A GET route there still is.
    const hidden = recorder.routes.find(
      (route) => (route.method === 'post' || route.method === 'head') && matches(route.path),
    );
    if (hidden !== undefined) return hidden.method.toUpperCase();
    this.mounted.push({ matches, handler });
    return undefined;
  }

  refuseOtherMethods(path: string, handler: NodeHandler): void {
    // Registered last, so a route of the application for one of these methods comes first.
    for (const method of OTHER_METHODS) {
      this.adapter[method.toLowerCase() as 'get'](path, handler as never);
    }
  }

  shadowedRoutes(recorder: RouteRecorder): ConfigurationFault[] {
    const faults: ConfigurationFault[] = [];
    for (const { method, path, version, isWebhook } of recorder.routes) {
      if (!isWebhook || method === 'get' || method === 'all') continue;
      const verb = method === 'head' ? 'HEAD' : 'POST';
      const first = recorder.firstForVersion(verb, probe(path), version);
      if (first === undefined || first.isWebhook) continue;
      faults.push({
        path: `${verb} ${path}`,
        message: `the route ${first.method.toUpperCase()} ${first.path} is registered earlier and would answer a webhook in its place, as if it had been handled: register it after, or give one of them another path`,
      });
    }
    return faults;
  }
}

function isWebhookMethod(method: string | undefined): method is 'HEAD' | 'POST' {
  return method === 'HEAD' || method === 'POST';
}

/** The path in a request's target, which may be a whole URI (RFC 9112, section 3.2.2). */
function pathOf(target: string): string {
  if (PLAIN_PATH.test(target)) return target;
  return target.replace(/^https?:\/\/[^/?#]*/i, '').replace(/[?#].*$/, '');
}

/** A path that the route would match: its parameters filled in. */
function probe(path: string): string {
  return path.replace(/[:*]\w+/g, 'probe').replace(/[{}]/g, '');
}
