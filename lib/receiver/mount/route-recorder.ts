import type { IncomingMessage } from 'node:http';
import { readRoute } from '../handlers/webhook-subscription.js';
import { pathMatcher, type PathMatcher, type RouterSettings } from './path-matcher.js';
import {
  keepVersions,
  versionOf,
  versionsOverlap,
  type RouteVersion,
  type VersioningAdapter,
} from './route-version.js';

/** The routes that can answer HEAD or POST; a GET route answers HEAD on Express. */
const RECORDED_METHODS = ['get', 'head', 'post', 'all'] as const;

type RecordedMethod = (typeof RECORDED_METHODS)[number];

/** A route of the application, in the order of registration. */
export interface RecordedRoute {
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
