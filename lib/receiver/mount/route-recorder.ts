import { VERSION_NEUTRAL } from '@nestjs/common';
import type { IncomingMessage } from 'node:http';
import { pathToRegexp } from 'path-to-regexp';
import { readRoute } from '../handlers/webhook-subscription.js';

/** How the application's router compares paths. */
export interface RouterSettings {
  readonly caseSensitive: boolean;
  /** Whether a slash at the end makes another path. */
  readonly strict: boolean;
}

/** Tells whether a request's path is one of a route's, as the router would. */
export type PathMatcher = (path: string) => boolean;

/** Reads a route's path once. */
export function pathMatcher(path: string, settings: RouterSettings): PathMatcher {
  try {
    const { regexp } = pathToRegexp(path, {
      sensitive: settings.caseSensitive,
      trailing: !settings.strict,
    });
    return (candidate) => regexp.test(candidate);
  } catch {
    // The router refuses the path too, and with a better message.
    return () => false;
  }
}

type Version = string | symbol | readonly (string | symbol)[];
type Handler = (request: unknown, response?: unknown, next?: () => unknown) => unknown;

/** The part of an adapter by which Nest lets a route have requests of its version only. */
interface VersioningAdapter {
  applyVersionFilter(handler: Handler, version: Version, options: unknown): Handler;
}

/** The version of a route that is not told by its path. */
interface RouteVersion {
  readonly version: Version;
  /** Whether the request asks for this version, by the adapter's own filter. */
  takes(request: IncomingMessage): boolean;
}

/** An own property, as Nest may copy a handler's properties to another one. */
const ROUTE_VERSION = Symbol('nestjs-webhook-token:version');

/**
 * Has the adapter's filters keep their version: on Express it is in a closure otherwise.
 *
 * @returns what gives the adapter its own method back
 */
function keepVersions(adapter: VersioningAdapter): () => void {
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

/** The version of a route's handler; `undefined` where it takes every request. */
function versionOf(handler: object): RouteVersion | undefined {
  return (handler as { [ROUTE_VERSION]?: RouteVersion })[ROUTE_VERSION];
}

/** Whether one request can be for both. */
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
  /** Where the path does not tell it; absent for a route that takes every request. */
  readonly version: RouteVersion | undefined;
  /** The guard reads its body. */
  readonly isWebhook: boolean;
}

/** The part of an adapter that Nest registers routes by. */
export type RoutingAdapter = Record<RecordedMethod, (...args: unknown[]) => unknown> &
  VersioningAdapter;

/**
 * Learns the final path of every route while Nest registers it: prefix, version and module path
 * included, which no metadata has. It stands in for the adapter's public methods until start-up is over.
 */
export class RouteRecorder {
  readonly routes: RecordedRoute[] = [];
  /** The webhook route that is being registered at this moment. */
  registering: RecordedRoute | undefined;

  private hasWebhook = false;
  private readonly matchers: { route: RecordedRoute; matches: PathMatcher }[] = [];
  private readonly restorations: (() => void)[] = [];

  constructor(adapter: RoutingAdapter, settings: RouterSettings) {
    for (const method of RECORDED_METHODS) this.standInFor(adapter, method, settings);
    this.restorations.push(keepVersions(adapter));
  }

  /** Gives the adapter its own methods back. */
  restore(): void {
    for (const restore of this.restorations.splice(0)) restore();
  }

  /** Whether the first route that matches the request is one of ours, as the router will find. */
  leadsToWebhook(method: 'HEAD' | 'POST', path: string, request: IncomingMessage): boolean {
    if (!this.hasWebhook) return false;
    const found = this.firstMatch(method, path, ({ version }) => version?.takes(request) ?? true);
    return found?.isWebhook ?? false;
  }

  /** The first route that answers some request of the method and the version on a path. */
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

  private standInFor(
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
