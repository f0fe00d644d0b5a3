import { VERSION_NEUTRAL } from '@nestjs/common';
import type { IncomingMessage } from 'node:http';
import { pathToRegexp } from 'path-to-regexp';
import { readRoute } from '../handlers/handler-metadata.js';

/** How the application's router compares paths. */
export interface RouterSettings {
  readonly caseSensitive: boolean;
  /** Whether a trailing slash makes a different path. */
  readonly strict: boolean;
}

/** Whether a request's path matches a route, by the rules of the router. */
export type PathMatcher = (path: string) => boolean;

/** Compiles a route's path. */
export function pathMatcher(path: string, settings: RouterSettings): PathMatcher {
  try {
    const { regexp } = pathToRegexp(path, {
      sensitive: settings.caseSensitive,
      trailing: !settings.strict,
    });
    return (candidate) => regexp.test(candidate);
  } catch {
    // The router refuses the path too, with a better message.
    return () => false;
  }
}

type Version = string | symbol | readonly (string | symbol)[];
type Handler = (request: unknown, response?: unknown, next?: () => unknown) => unknown;

/** The method of an adapter by which Nest filters requests by version. */
interface VersioningAdapter {
  applyVersionFilter(handler: Handler, version: Version, options: unknown): Handler;
}

/** The version of a route, if it is not part of the path. */
interface RouteVersion {
  readonly version: Version;
  /** Whether the request asks for this version, by the adapter's own filter. */
  takes(request: IncomingMessage): boolean;
}

/** An own property, since Nest may copy a handler's properties to another handler. */
const ROUTE_VERSION = Symbol('nestjs-webhook-token:version');

/**
 * Records the version of each route handler, which Express otherwise hides in a closure.
 *
 * @returns restores the adapter's own method
 */
function recordVersions(adapter: VersioningAdapter): () => void {
  const own = Object.getOwnPropertyDescriptor(adapter, 'applyVersionFilter');
  const original = adapter.applyVersionFilter;
  adapter.applyVersionFilter = (handler, version, options) => {
    const probe = original.call(adapter, () => true, version, options);
    const kept: RouteVersion = {
      version,
      takes: (request) => probe(request, undefined, () => false) === true,
    };
    return Object.assign(original.call(adapter, handler, version, options), {
      [ROUTE_VERSION]: kept,
    });
  };
  return () => {
    if (own === undefined) delete (adapter as Partial<VersioningAdapter>).applyVersionFilter;
    else Object.defineProperty(adapter, 'applyVersionFilter', own);
  };
}

/** The version of a route's handler; `undefined` if it handles every version. */
function versionOf(handler: object): RouteVersion | undefined {
  return (handler as { [ROUTE_VERSION]?: RouteVersion })[ROUTE_VERSION];
}

/** Whether a request can match both versions. */
function versionsOverlap(one: RouteVersion | undefined, other: RouteVersion | undefined): boolean {
  if (one === undefined || other === undefined) return true;
  if (one.version === VERSION_NEUTRAL || other.version === VERSION_NEUTRAL) return true;
  const versions = new Set([one.version].flat());
  return [other.version].flat().some((version) => versions.has(version));
}

/** The routes that can answer HEAD or POST; a GET route answers HEAD on Express. */
const RECORDED_METHODS = ['get', 'head', 'post', 'all'] as const;

type RecordedMethod = (typeof RECORDED_METHODS)[number];

/** A route of the application, in the order of registration. */
interface RecordedRoute {
  readonly method: RecordedMethod;
  readonly path: string;
  /** Absent if the version is part of the path, or the route handles every version. */
  readonly version: RouteVersion | undefined;
  /** Whether the webhook guard reads its body. */
  readonly isWebhook: boolean;
}

/** The methods of an adapter by which Nest registers routes. */
export type RoutingAdapter = Record<RecordedMethod, (...args: unknown[]) => unknown> &
  VersioningAdapter;

/**
 * Records the final path of every route while Nest registers it, with prefix, version and module path, which no metadata contains.
 * It wraps the adapter's public methods until start-up ends.
 */
export class RouteRecorder {
  readonly routes: RecordedRoute[] = [];
  /** The webhook route that is currently being registered. */
  registering: RecordedRoute | undefined;

  private hasWebhook = false;
  private readonly matchers: { route: RecordedRoute; matches: PathMatcher }[] = [];
  private readonly restorations: (() => void)[] = [];

  constructor(adapter: RoutingAdapter, settings: RouterSettings) {
    for (const method of RECORDED_METHODS) this.wrapMethod(adapter, method, settings);
    this.restorations.push(recordVersions(adapter));
  }

  /** Restores the adapter's own methods. */
  restore(): void {
    for (const restore of this.restorations.splice(0)) restore();
  }

  /** Whether the first route that matches the request, and so the one the router chooses, is a webhook route. */
  isForWebhookRoute(method: 'HEAD' | 'POST', path: string, request: IncomingMessage): boolean {
    if (!this.hasWebhook) return false;
    const found = this.firstMatch(method, path, ({ version }) => version?.takes(request) ?? true);
    return found?.isWebhook ?? false;
  }

  /** The first route that answers a request of this method and version on a path. */
  firstForVersion(
    method: 'HEAD' | 'POST',
    path: string,
    wanted: RouteVersion | undefined,
  ): RecordedRoute | undefined {
    return this.firstMatch(method, path, ({ version }) => versionsOverlap(version, wanted));
  }

  private firstMatch(
    method: 'HEAD' | 'POST',
    path: string,
    isFor: (route: RecordedRoute) => boolean,
  ): RecordedRoute | undefined {
    return this.matchers.find(
      ({ route, matches }) => answers(route, method) && matches(path) && isFor(route),
    )?.route;
  }

  private wrapMethod(
    adapter: RoutingAdapter,
    method: RecordedMethod,
    settings: RouterSettings,
  ): void {
    const own = Object.getOwnPropertyDescriptor(adapter, method);
    const original = adapter[method];
    adapter[method] = (...args: unknown[]): unknown => {
      const [path, handler] = args;
      if (typeof path !== 'string' || typeof handler !== 'function') {
        return original.apply(adapter, args);
      }
      const isWebhook = readRoute(handler) !== undefined;
      const route = { method, path, version: versionOf(handler), isWebhook };
      this.hasWebhook ||= isWebhook;
      this.routes.push(route);
      this.matchers.push({ route, matches: pathMatcher(path, settings) });
      this.registering = route.isWebhook ? route : undefined;
      try {
        return original.apply(adapter, args);
      } finally {
        this.registering = undefined;
      }
    };
    this.restorations.push(() => {
      if (own === undefined) delete (adapter as Partial<RoutingAdapter>)[method];
      else Object.defineProperty(adapter, method, own);
    });
  }
}

function answers({ method }: RecordedRoute, wanted: 'HEAD' | 'POST'): boolean {
  if (method === 'all') return true;
  return wanted === 'POST' ? method === 'post' : method === 'head' || method === 'get';
}
