import type { IncomingMessage } from 'node:http';
import { VERSION_NEUTRAL } from '@nestjs/common';

type Version = string | symbol | readonly (string | symbol)[];
type Handler = (request: unknown, response?: unknown, next?: () => unknown) => unknown;

/** The part of an adapter by which Nest lets a route have requests of its version only. */
export interface VersioningAdapter {
  applyVersionFilter(handler: Handler, version: Version, options: unknown): Handler;
}

/** The version of a route that is not told by its path. */
export interface RouteVersion {
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
export function keepVersions(adapter: VersioningAdapter): () => void {
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
export function versionOf(handler: object): RouteVersion | undefined {
  return (handler as { [ROUTE_VERSION]?: RouteVersion })[ROUTE_VERSION];
}

/** Whether one request can be for both. */
export function versionsOverlap(
  one: RouteVersion | undefined,
  other: RouteVersion | undefined,
): boolean {
  if (one === undefined || other === undefined) return true;
  if (one.version === VERSION_NEUTRAL || other.version === VERSION_NEUTRAL) return true;
  const versions = new Set([one.version].flat());
  return [other.version].flat().some((version) => versions.has(version));
}
