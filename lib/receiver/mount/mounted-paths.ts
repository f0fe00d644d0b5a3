import type { EventEmitter } from 'node:events';
import type { IncomingMessage, ServerResponse } from 'node:http';
import { type HttpServer, RequestMethod, VERSION_NEUTRAL, VersioningType } from '@nestjs/common';
import type { ApplicationConfig } from '@nestjs/core';
import { endConnectionAfter, hasAmbiguousLength, isAfterConnectionEnd } from '../node-http.js';
import type { BodyShield } from './body-shield.js';

/** Answers a request of Node, independent of the adapter. */
export type NodeHandler = (request: IncomingMessage, response: ServerResponse) => void;

/** A path that a receiver answers. */
export interface MountedPath {
  readonly path: string;
  readonly receiver: string;
  /** HEAD and POST, and those by which the sender checks the receiver. */
  readonly methods: readonly string[];
  readonly answer: NodeHandler;
  /** Answers every other method, unless the application has a route for it. */
  readonly refuse: NodeHandler;
}

/** Mounts receivers on an adapter; Express and Fastify have an implementation each. */
export interface AdapterMount {
  readonly paths: MountedPaths;
  readonly shield: BodyShield;

  /** @returns the methods for which the application already has a route there; then nothing is mounted */
  mount(mounted: MountedPath): string | undefined;
}

/** Methods that a mounted path answers with 405. */
export const OTHER_METHODS = ['GET', 'PUT', 'PATCH', 'DELETE', 'OPTIONS'] as const;

/** How the application's router compares paths. */
interface RouterSettings {
  readonly caseSensitive: boolean;
  /** Whether a trailing slash makes a different path. */
  readonly strict: boolean;
}

/** The mounted paths of an adapter, shared by all webhook modules of an application. */
export class MountedPaths {
  private readonly mounted: (MountedPath & { readonly pattern: RegExp })[] = [];
  /** Of any path. */
  private readonly methods = new Set<string>();
  private isAttached = false;

  constructor(private readonly settings: RouterSettings) {}

  receiverAt(path: string): string | undefined {
    const { caseSensitive } = this.settings;
    const compared = (one: string): string => (caseSensitive ? one : one.toLowerCase());
    return this.mounted.find((one) => compared(one.path) === compared(path))?.receiver;
  }

  add(mounted: MountedPath): void {
    for (const method of mounted.methods) this.methods.add(method);
    this.mounted.push({ ...mounted, pattern: this.patternOf(mounted.path) });
  }

  /**
   * Answers the requests for mounted paths ahead of the framework, as socket.io does. Requests that do not arrive on the
   * application's own server, such as those of `inject()`, take the framework's way to the same handler.
   */
  attach(adapter: HttpServer): void {
    const server = adapter.getHttpServer() as EventEmitter | undefined;
    if (this.isAttached || this.mounted.length === 0 || server === undefined) return;
    this.isAttached = true;
    const listeners = server.rawListeners('request');
    // The others only watch: they may count the requests of a connection, to close it once none is left.
    const place = Math.max(0, listeners.indexOf(adapter.getInstance()));
    const framework = listeners[place];
    listeners[place] = (request: IncomingMessage, response: ServerResponse) => {
      if (!this.take(request, response)) framework?.call(server, request, response);
    };
    server.removeAllListeners('request');
    for (const listener of listeners) server.on('request', listener as () => void);
  }

  /**
   * Takes a request for a mounted path, and one that must not be answered.
   *
   * @returns whether it was taken, so that nothing else handles it
   */
  take(request: IncomingMessage, response: ServerResponse): boolean {
    if (!this.screen(request, response)) return true;
    const { method = '', url = '/' } = request;
    if (!this.methods.has(method)) return false;
    const path = pathOfTarget(url);
    const found = this.mounted.find(({ pattern }) => pattern.test(path));
    if (found?.methods.includes(method) !== true) return false;
    found.answer(request, response);
    return true;
  }

  /**
   * Ends the connection after a HEAD that declares a body, whatever its path: what follows it may have been chosen by an attacker.
   *
   * @returns `false` for a request that follows such a HEAD, and must not be processed
   */
  screen(request: IncomingMessage, response: ServerResponse): boolean {
    if (isAfterConnectionEnd(request)) return false;
    if (hasAmbiguousLength(request)) endConnectionAfter(request, response);
    return true;
  }

  /** A global prefix may have parameters. */
  private patternOf(path: string): RegExp {
    const { caseSensitive, strict } = this.settings;
    const segments = path
      .split('/')
      .map((one) => (one.startsWith(':') ? '[^/]+' : one.replace(/[^\w-]/g, '\\$&')));
    return new RegExp(`^${segments.join('/')}${strict ? '' : '/?'}$`, caseSensitive ? '' : 'i');
  }
}

/** The path of a request target, which may be an absolute URI (RFC 9112, section 3.2.2). */
function pathOfTarget(target: string): string {
  return target.replace(/^https?:\/\/[^/?#]*/i, '').replace(/[?#].*$/s, '');
}

/**
 * The absolute paths of a receiver: under the global prefix, unless excluded from it, and under the default versions if the
 * application uses URI versioning.
 *
 * @param path - without a slash at either end
 * @returns absolute paths without a trailing slash
 */
export function mountPaths(path: string, config: ApplicationConfig): string[] {
  const prefix = isExcluded(path, config) ? '' : trim(config.getGlobalPrefix());
  return versionSegments(config).map((version) =>
    ['', prefix, version, path].filter((part, i) => i === 0 || part !== '').join('/'),
  );
}

function isExcluded(path: string, config: ApplicationConfig): boolean {
  const { exclude = [] } = config.getGlobalPrefixOptions();
  return exclude.some(
    ({ pathRegex, requestMethod }) =>
      [RequestMethod.ALL, RequestMethod.POST, RequestMethod.HEAD].includes(requestMethod) &&
      new RegExp(pathRegex.source, pathRegex.flags).test(`/${path}`),
  );
}

function versionSegments(config: ApplicationConfig): string[] {
  const versioning = config.getVersioning();
  if (versioning?.type !== VersioningType.URI || versioning.defaultVersion === undefined)
    return [''];
  const versions = [versioning.defaultVersion].flat();
  const prefix = versioning.prefix === false ? '' : (versioning.prefix ?? 'v');
  return versions.map((version) =>
    version === VERSION_NEUTRAL ? '' : `${prefix}${String(version)}`,
  );
}

function trim(path: string): string {
  return path.replace(/^\/+|\/+$/g, '');
}
