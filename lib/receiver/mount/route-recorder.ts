import { pathToRegexp } from 'path-to-regexp';
import { readRoute } from '../handlers/webhook-subscription.js';

/** The routes that can answer HEAD or POST; a GET route answers HEAD on Express. */
const RECORDED_METHODS = ['get', 'head', 'post', 'all'] as const;

type RecordedMethod = (typeof RECORDED_METHODS)[number];

/** How the application's router compares paths. */
export interface RouterSettings {
  readonly caseSensitive: boolean;
  readonly strict: boolean;
}

/** A route of the application, in the order of registration. */
export interface RecordedRoute {
  readonly method: RecordedMethod;
  readonly path: string;
  /** The guard reads its body. */
  readonly isWebhook: boolean;
}

/** The part of an adapter that Nest registers routes by. */
export type RoutingAdapter = Record<RecordedMethod, (...args: unknown[]) => unknown>;

/**
 * Learns the final path of every route while Nest registers it: prefix, version and module path
 * included, which no metadata has. It stands in for the adapter's public methods until start-up is over.
 */
export class RouteRecorder {
  readonly routes: RecordedRoute[] = [];
  /** The webhook route that is being registered at this moment. */
  registering: RecordedRoute | undefined;

  private readonly matchers: { route: RecordedRoute; matches: (path: string) => boolean }[] = [];
  private readonly restorations: (() => void)[] = [];

  constructor(adapter: RoutingAdapter, settings: RouterSettings) {
    for (const method of RECORDED_METHODS) this.standInFor(adapter, method, settings);
  }

  /** Gives the adapter its own methods back. */
  restore(): void {
    for (const restore of this.restorations.splice(0)) restore();
  }

  /** Whether the first route that matches the request is one of ours, as the router will find. */
  leadsToWebhook(method: 'HEAD' | 'POST', path: string): boolean {
    return this.firstMatch(method, path)?.isWebhook ?? false;
  }

  /** The first route that answers the method on a path. */
  firstMatch(method: 'HEAD' | 'POST', path: string): RecordedRoute | undefined {
    return this.matchers.find(({ route, matches }) => answers(route, method) && matches(path))
      ?.route;
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
      const route = { method, path, isWebhook: readRoute(handler) !== undefined };
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

function pathMatcher(path: string, settings: RouterSettings): (path: string) => boolean {
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
