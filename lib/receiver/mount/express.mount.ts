import type { IncomingMessage, ServerResponse } from 'node:http';
import type { HttpServer } from '@nestjs/common';
import type { ConfigurationProblem } from '../../errors/webhook.error.js';
import { OTHER_METHODS, type AdapterMount, type NodeHandler } from './adapter-mount.js';
import { shieldBody } from './body-shield.js';
import { isAfterConnectionEnd, hasAmbiguousLength, endConnectionAfter } from './last-request.js';
import {
  pathMatcher,
  type PathMatcher,
  type RouterSettings,
  type RouteRecorder,
} from './route-recorder.js';

type Next = () => void;

/** The part of Express's application that is used here, since the package does not depend on Express. A lookalike may lack any of it. */
interface ExpressInstance {
  handle?: (request: IncomingMessage, response: ServerResponse, next?: Next) => void;
  readonly router?: { readonly stack?: readonly unknown[] };
}

/** Hooks of Nest's adapter that an application can set; they run first on every request. */
interface RequestHooks {
  readonly onRequestHook?: unknown;
  readonly onResponseHook?: unknown;
  readonly setOnRequestHook?: unknown;
}

/** A request target without query, as most are. */
const PLAIN_PATH = /^\/[^?#]*$/;

/**
 * Mounts receivers on Express by one middleware before all others. It answers mounted paths, and hides the body of a request that the
 * router will pass to a webhook route.
 *
 * If no middleware of the application comes before it, mounted paths are answered before Express starts: Express replaces the
 * prototypes of request and response, which makes Node's own code slow and cost half of a mounted request (benchmark `receive`).
 */
export class ExpressMount implements AdapterMount {
  private readonly mounted: { matches: PathMatcher; handler: NodeHandler }[] = [];

  constructor(
    private readonly adapter: HttpServer,
    private readonly settings: RouterSettings,
  ) {}

  interceptRequests(recorder: RouteRecorder): void {
    this.answerAheadOfExpress();
    this.adapter.use((request: IncomingMessage, response: ServerResponse, next: Next) => {
      if (this.tryHandle(request, response)) return;
      const { method } = request;
      if (!isWebhookMethod(method)) return next();
      if (recorder.isForWebhookRoute(method, pathOf(request.url ?? '/'), request)) {
        if (hasAmbiguousLength(request)) endConnectionAfter(request, response);
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
    // An instance that the application created may have middleware, which must see every request.
    if (ahead > ofNest || instance.handle === undefined) return;
    const handle = instance.handle.bind(instance);
    instance.handle = (request, response, next) => {
      const isHooked = hooks.onRequestHook !== undefined || hooks.onResponseHook !== undefined;
      if (isHooked || !this.tryHandle(request, response)) handle(request, response, next);
    };
  }

  /** @returns whether the request needs no further handling: it was for a mounted path, or it must not be answered */
  private tryHandle(request: IncomingMessage, response: ServerResponse): boolean {
    if (isAfterConnectionEnd(request)) return true;
    if (this.mounted.length === 0 || !isWebhookMethod(request.method)) return false;
    const path = pathOf(request.url ?? '/');
    const handler = this.mounted.find(({ matches }) => matches(path))?.handler;
    if (handler === undefined) return false;
    if (hasAmbiguousLength(request)) endConnectionAfter(request, response);
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
    // Registered last, so a route of the application for such a method comes first.
    for (const method of OTHER_METHODS) {
      this.adapter[method.toLowerCase() as 'get'](path, handler as never);
    }
  }

  shadowedRoutes(recorder: RouteRecorder): ConfigurationProblem[] {
    const faults: ConfigurationProblem[] = [];
    for (const { method, path, version, isWebhook } of recorder.routes) {
      if (!isWebhook || method === 'get' || method === 'all') continue;
      const verb = method === 'head' ? 'HEAD' : 'POST';
      const first = recorder.firstForVersion(verb, probe(path), version);
      if (first === undefined || first.isWebhook) continue;
      faults.push({
        path: `${verb} ${path}`,
        message: `the route ${first.method.toUpperCase()} ${first.path} is registered earlier and would answer webhooks in its place; register it later, or give one of them another path`,
      });
    }
    return faults;
  }
}

function isWebhookMethod(method: string | undefined): method is 'HEAD' | 'POST' {
  return method === 'HEAD' || method === 'POST';
}

/** The path of a request target, which may be an absolute URI (RFC 9112, section 3.2.2). */
function pathOf(target: string): string {
  if (PLAIN_PATH.test(target)) return target;
  return target.replace(/^https?:\/\/[^/?#]*/i, '').replace(/[?#].*$/, '');
}

/** A path that the route matches, with placeholders for its parameters. */
function probe(path: string): string {
  return path.replace(/[:*]\w+/g, 'probe').replace(/[{}]/g, '');
}
