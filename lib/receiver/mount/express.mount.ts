import type { IncomingMessage, ServerResponse } from 'node:http';
import type { HttpServer } from '@nestjs/common';
import type { ConfigurationFault } from '../../errors/webhook-configuration.error.js';
import { OTHER_METHODS, type AdapterMount, type NodeHandler } from './adapter-mount.js';
import { shieldBody } from './body-shield.js';
import { comesAfterLastRequest, endsInDispute, makeLastRequest } from './last-request.js';
import { pathMatcher, type PathMatcher, type RouterSettings } from './path-matcher.js';
import type { RouteRecorder } from './route-recorder.js';

type Next = () => void;

/** A target that is nothing but a path, as most are. */
const PLAIN_PATH = /^\/[^?#]*$/;

/**
 * Express: one middleware ahead of everything. It answers mounted paths by itself, and shields the body
 * of a request that the router is going to hand to a webhook route.
 */
export class ExpressMount implements AdapterMount {
  private readonly mounted: { matches: PathMatcher; handler: NodeHandler }[] = [];

  constructor(
    private readonly adapter: HttpServer,
    private readonly settings: RouterSettings,
  ) {}

  shieldRoutes(recorder: RouteRecorder): void {
    this.adapter.use((request: IncomingMessage, response: ServerResponse, next: Next) => {
      if (comesAfterLastRequest(request)) return;
      const { method } = request;
      if (method !== 'HEAD' && method !== 'POST') return next();
      const path = pathOf(request.url ?? '/');
      const handler = this.mounted.find(({ matches }) => matches(path))?.handler;
      if (handler === undefined && !recorder.leadsToWebhook(method, path, request)) return next();
      if (endsInDispute(request)) makeLastRequest(request, response);
      if (handler !== undefined) return handler(request, response);
      shieldBody(request);
      next();
    });
  }

  mount(path: string, handler: NodeHandler): ConfigurationFault[] {
    this.mounted.push({ matches: pathMatcher(path, this.settings), handler });
    return [];
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

/** The path in a request's target, which may be a whole URI (RFC 9112, section 3.2.2). */
function pathOf(target: string): string {
  if (PLAIN_PATH.test(target)) return target;
  return target.replace(/^https?:\/\/[^/?#]*/i, '').replace(/[?#].*$/, '');
}

/** A path that the route would match: its parameters filled in. */
function probe(path: string): string {
  return path.replace(/[:*]\w+/g, 'probe').replace(/[{}]/g, '');
}
