import type { HttpServer, OnModuleInit } from '@nestjs/common';
import type { HttpAdapterHost } from '@nestjs/core';
import { createHash } from 'node:crypto';
import type { IncomingMessage, ServerResponse } from 'node:http';
import { type Duration, MINUTE, SECOND } from '../clock/duration.js';
import { errorName, WebhookConfigurationError } from '../errors/webhook.error.js';
import type { Problems } from '../options/problems.js';
import { duration, object, optional, type Read, type Rule, rule } from '../options/rules.js';
import { PublisherLog } from './publisher-log.js';
import type { SigningResolver } from './signing.resolver.js';
import { keySetProblems, type WebhookJwks, type WebhookKeySet } from './webhook.jwks.js';

/** Where the publisher's public keys are served. */
export interface WebhookJwksOptions {
  /** Outside the global prefix; default `'/.well-known/webhook-keys'`. */
  readonly path?: string | undefined;
  /** How long receivers and caches may keep it; default `'5m'`. */
  readonly maxAge?: Duration | undefined;
}

/** Segments of unreserved characters (RFC 3986, section 2.3), which every router reads alike. */
const PLAIN_PATH = /^(?:\/[\w.~-]+)+$/;

const JWKS_OPTIONS = object<WebhookJwksOptions>()(
  {
    path: optional(
      rule<string>(
        (path) => typeof path === 'string' && PLAIN_PATH.test(path),
        "must be a path of plain segments, such as '/.well-known/webhook-keys'",
      ),
      '/.well-known/webhook-keys',
    ),
    maxAge: optional(duration(), 5 * MINUTE),
  },
  { form: 'true, or an object: { path, maxAge }' },
);

/** Where and how long; durations in milliseconds. */
export type ResolvedJwks = Read<typeof JWKS_OPTIONS>;

/** Reads the option `jwks`; `undefined` if no JWKS is served. */
export const JWKS: Rule<ResolvedJwks | undefined> = (value, at, name) =>
  value === undefined || value === false
    ? undefined
    : JWKS_OPTIONS(value === true ? {} : value, at, name);

/** Checks that there are keys to serve, once the signers are known. */
export function checkJwks(signing: SigningResolver, at: Problems): void {
  // Invalid keys, and keys that are not loaded yet, would be reported as missing.
  if (signing.hasProblems || signing.provided.length > 0) return;
  const keys = signing.sources.map(({ known }) => known);
  for (const message of keySetProblems(keys)) at.add('jwks', message);
}

/**
 * Answers with a key set and its caching headers (RFC 9111).
 *
 * @param maxAge - milliseconds
 */
function sendKeySet(
  request: IncomingMessage,
  response: ServerResponse,
  keySet: WebhookKeySet,
  maxAge: number,
): void {
  const body = Buffer.from(JSON.stringify(keySet));
  const etag = `"${createHash('sha256').update(body).digest('base64url')}"`;
  response.setHeader('Cache-Control', `public, max-age=${Math.floor(maxAge / SECOND)}`);
  response.setHeader('ETag', etag);
  if (isCurrent(request.headers['if-none-match'], etag)) {
    response.writeHead(304).end();
    return;
  }
  response.writeHead(200, {
    'Content-Type': 'application/jwk-set+json',
    'Content-Length': body.length,
    'X-Content-Type-Options': 'nosniff',
  });
  response.end(request.method === 'HEAD' ? undefined : body);
}

/** The keys are unavailable; caches keep serving their copy. */
function sendUnavailable(response: ServerResponse): void {
  const headers = { 'Cache-Control': 'no-store', 'Retry-After': '5', 'Content-Length': 0 };
  response.writeHead(503, headers).end();
}

/** RFC 9110, section 13.1.2: a list of tags, compared weakly, or `*`. */
function isCurrent(ifNoneMatch: string | undefined, etag: string): boolean {
  if (ifNoneMatch === undefined) return false;
  return ifNoneMatch
    .split(',')
    .map((tag) => tag.trim().replace(/^W\//, ''))
    .some((tag) => tag === '*' || tag === etag);
}

const OTHER_METHODS = ['POST', 'PUT', 'PATCH', 'DELETE'] as const;

/** The arguments of a route's handler: Node's objects, or Fastify's wrappers. */
type RouteRequest = IncomingMessage | { readonly raw: IncomingMessage };
type RouteResponse = ServerResponse | { readonly raw: ServerResponse; hijack(): void };

/** The part of Fastify's instance that is used here. */
interface FastifyRoutes {
  hasRoute?(route: { method: string; url: string }): boolean;
}

/** Shared by all publishers of an application. */
const servedPaths = new WeakMap<HttpServer, Set<string>>();

/**
 * Serves the key set on the application's HTTP adapter, without its prefix, versions and guards, which do not apply to the
 * well-known paths of RFC 8615.
 */
export class JwksRoute implements OnModuleInit {
  private readonly log = new PublisherLog();

  constructor(
    private readonly options: ResolvedJwks,
    private readonly jwks: WebhookJwks,
    private readonly adapterHost: HttpAdapterHost,
  ) {}

  /**
   * In this hook, the application's own routes are registered, and its 404 route is not yet.
   *
   * @hidden
   */
  onModuleInit(): void {
    // Typed as always there; `null` in an application without HTTP, which may publish as well.
    const adapter = this.adapterHost.httpAdapter as HttpServer | null | undefined;
    if (adapter === null || adapter === undefined) return;
    const { path, maxAge } = this.options;
    const served = servedPaths.get(adapter) ?? new Set();
    if (served.has(path) || isTaken(adapter, 'GET', path)) throw pathTaken(path);
    servedPaths.set(adapter, served.add(path));
    const serve = async (request: IncomingMessage, response: ServerResponse): Promise<void> => {
      try {
        const keys = await this.jwks.document();
        this.log.recovered('keys');
        // The application, for example a timeout, may have answered meanwhile.
        if (!response.headersSent) sendKeySet(request, response, keys, maxAge);
      } catch (error) {
        // Anyone may request the keys at any rate.
        this.log.once(
          'error',
          'keys',
          () => `The public keys could not be served (${errorName(error)}).`,
        );
        if (!response.headersSent) sendUnavailable(response);
      }
    };
    adapter.get(
      path,
      onNode((request, response) => void serve(request, response)),
    );
    for (const method of OTHER_METHODS) {
      if (isTaken(adapter, method, path)) continue;
      const register = method.toLowerCase() as Lowercase<typeof method>;
      adapter[register](
        path,
        onNode((_, response) =>
          response.writeHead(405, { Allow: 'GET, HEAD', 'Content-Length': 0 }).end(),
        ),
      );
    }
    this.log.log(() => `Mapped {${path}, GET} to the publisher's public keys`);
  }
}

/** Fastify refuses a second route for a path; on Express, the first one wins. */
function isTaken(adapter: HttpServer, method: string, path: string): boolean {
  if (adapter.getType() !== 'fastify') return false;
  const instance = adapter.getInstance() as FastifyRoutes | undefined;
  return instance?.hasRoute?.({ method, url: path }) === true;
}

function pathTaken(path: string): WebhookConfigurationError {
  return new WebhookConfigurationError([
    {
      path: 'publisher.jwks.path',
      message: `the application, or another publisher, has a route for GET ${path} already; give one of them another path`,
    },
  ]);
}

/** Passes Node's own objects to a handler, on either adapter. */
function onNode(handler: (request: IncomingMessage, response: ServerResponse) => void) {
  return (request: RouteRequest, response: RouteResponse): void => {
    if ('hijack' in response) response.hijack();
    handler('raw' in request ? request.raw : request, 'raw' in response ? response.raw : response);
  };
}
