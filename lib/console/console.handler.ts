import { createHash } from 'node:crypto';
import type { IncomingMessage, ServerResponse } from 'node:http';
import { Inject, Injectable, Logger, StreamableFile } from '@nestjs/common';
import { ApplicationConfig, HttpAdapterHost } from '@nestjs/core';
import { errorName } from '../errors/webhook.error.js';
import { readArgument } from '../options/read-options.js';
import { ByteChunks } from '../token/payload.js';
import { ActivityLog } from './activity-log.js';
import { ConsoleActivity } from './console-activity.js';
import { type ConsoleAsset, loadAssets, pageHeaders } from './console-assets.js';
import { LINK } from './console-input.js';
import { CONSOLE_OPTIONS, type ResolvedConsole } from './console-options.js';
import { ConsoleLimits } from './console-limits.js';
import { ConsoleError, problemOf } from './console-problem.js';
import type { ConsoleCall, ConsoleRoute } from './console-route.js';
import { ConsoleService } from './console.service.js';
import { ConsoleStreams } from './console.streams.js';
import {
  type ConsoleAccess,
  type ConsoleRequest,
  activityOriginOf,
  hostOf,
  requireCapabilities,
  requireLoopback,
  requireSameSite,
} from './console-session.js';
import { type PortalGrant, WebhookPortal } from './webhook.portal.js';

/** Bytes of a body that no parser of the application has parsed. */
const MAX_BODY = 65_536;

/** Links of one tenant that are opened in a minute; each is recorded. */
const LINKS_PER_MINUTE = 60;

const COMMON_HEADERS = { 'Cache-Control': 'no-store', 'X-Content-Type-Options': 'nosniff' };

/** An adapter's request and response: of Express, or of Fastify with Node's as `raw`. */
export type AdapterRequest = IncomingMessage & {
  readonly raw?: IncomingMessage;
  readonly body?: unknown;
};
/** See {@link AdapterRequest}. */
export type AdapterResponse = ServerResponse & {
  readonly raw?: ServerResponse;
  hijack?(): void;
};

/** An answer to send; a string is JSON. */
interface Reply {
  readonly status: number;
  readonly headers: Readonly<Record<string, string>>;
  readonly body?: string | Buffer;
}

/**
 * Answers everything below the path of console and portal. The application's guards have run before.
 *
 * One route of each controller leads here, instead of a Nest route for each call: for those, an interceptor of the application would
 * wrap the answers, its filter would replace the problems, and its `ValidationPipe` would refuse the bodies, and the page would not
 * understand them. It writes through the adapter, so that headers of the application's plugins stay, except the consent of CORS.
 */
@Injectable()
export class ConsoleHandler {
  private readonly logger = new Logger('WebhookConsole');
  /** Whether no guard protects the console; set at start-up. It then answers this machine only. */
  isUnguarded = false;
  private assets: Promise<ReadonlyMap<string, ConsoleAsset>> | undefined;

  constructor(
    @Inject(CONSOLE_OPTIONS) private readonly options: ResolvedConsole,
    private readonly service: ConsoleService,
    private readonly portal: WebhookPortal,
    private readonly activity: ConsoleActivity,
    private readonly log: ActivityLog,
    private readonly streams: ConsoleStreams,
    private readonly limits: ConsoleLimits,
    private readonly adapterHost: HttpAdapterHost,
    private readonly config: ApplicationConfig,
  ) {}

  /** Answers a request; never rejects. */
  async handle(
    kind: 'console' | 'portal',
    request: AdapterRequest,
    response: AdapterResponse,
  ): Promise<void> {
    const node = request.raw ?? request;
    // The CORS of the application is meant for its own API. Fastify's response and Node's have headers of their own.
    for (const one of [response, response.raw]) one?.removeHeader('Access-Control-Allow-Origin');
    try {
      if (kind === 'console' && this.isUnguarded) requireLoopback(node);
      const path = this.pathBelow(kind, node);
      if (path === undefined) return this.redirect(kind, response);
      if (!path.startsWith('api/')) return await this.sendAsset(kind, path, node, response);
      const call = await readCall(kind, path, this.originsOf(kind, node), request, node);
      requireSameSite(call);
      if (call.segments.join('/') === 'events' && call.method === 'GET') {
        const access = this.accessOf(call, request);
        requireCapabilities(access, ['view']);
        this.streams.requireFree(access);
        response.hijack?.();
        return this.streams.start(access, node, response.raw ?? response, COMMON_HEADERS);
      }
      this.send(response, await this.answer(call, request));
    } catch (error) {
      const { problem, isBug } = problemOf(error);
      if (isBug) {
        // Of others the name only: a message may quote a payload.
        const why = error instanceof ConsoleError ? error.message : errorName(error);
        this.logger.error(`A request of the page failed: ${why}`);
      }
      const wait = error instanceof ConsoleError ? error.retryAfter : undefined;
      const headers = {
        ...COMMON_HEADERS,
        'Content-Type': 'application/problem+json',
        ...(wait !== undefined && { 'Retry-After': String(wait) }),
      };
      this.send(response, { status: problem.status, headers, body: JSON.stringify(problem) });
    }
  }

  private async answer(call: ConsoleRequest, request: AdapterRequest): Promise<Reply> {
    if (call.segments.join('/') === 'session') return this.answerSession(call, request);
    const access = this.accessOf(call, request);
    const found = routeOf(this.service.routes, call);
    if (found === undefined || (call.kind === 'portal' && !found.route.inPortal)) {
      throw new ConsoleError('unknown_route', 'This path of the API does not exist.');
    }
    const { route, id } = found;
    requireCapabilities(access, route.needs);
    this.limits.requireRate(access, route);
    return this.run(route, { ...call, body: call.body ?? {}, access, id });
  }

  private async run(route: ConsoleRoute, call: ConsoleCall): Promise<Reply> {
    const { access } = call;
    const tenant = access.tenant ?? (await route.owner?.(call).catch(() => undefined));
    try {
      const answer =
        route.isRead === true
          ? await this.limits.read(access, () => route.run(call))
          : await route.run(call);
      await this.record(route, call, tenant, { answer, code: undefined });
      return json(answer, route.status);
    } catch (error) {
      const { status, code } = problemOf(error).problem;
      // Unknown ids would fill the log with guesses, also if the body was refused before.
      const isGuess = status === 404 && route.owner !== undefined;
      if (!isGuess && (await isKnown(route, call)))
        await this.record(route, call, tenant, { answer: undefined, code });
      throw error;
    }
  }

  private async record(
    route: ConsoleRoute,
    call: ConsoleCall,
    owner: string | undefined,
    { answer, code }: { readonly answer: unknown; readonly code: string | undefined },
  ): Promise<void> {
    const facts = route.action?.(call, answer);
    if (facts === undefined) return;
    const { action, target, count, tenant = owner } = facts;
    const { actor } = call.access;
    await this.log.acted({
      by: activityOriginOf(call.access),
      action,
      ...(actor !== undefined && { actor }),
      ...(tenant !== undefined && { tenant }),
      ...(target !== undefined && { target: target.slice(0, 255) }),
      ...(count !== undefined && code === undefined && { count }),
      ...(code === undefined ? { outcome: 'done' } : { outcome: 'failed', code }),
    });
    if (code === undefined && action.startsWith('endpoint.')) {
      this.activity.changed('endpoints', target, tenant);
    }
  }

  private async answerSession(call: ConsoleRequest, request: AdapterRequest): Promise<Reply> {
    const { kind, method } = call;
    if (method === 'GET' || method === 'HEAD') {
      const access = this.accessOf(call, request);
      return json(await this.limits.read(access, () => this.service.session(access)));
    }
    if (kind === 'portal' && method === 'POST') return this.openLink(call);
    if (kind === 'portal' && method === 'DELETE') {
      const grant = this.grantOf(call);
      if (grant !== undefined) {
        this.portal.end(grant);
        this.streams.endSession(grant.id);
      }
      return { status: 204, headers: { ...COMMON_HEADERS, 'Set-Cookie': this.cookie('', 0) } };
    }
    throw new ConsoleError('unknown_route', 'This path of the API does not exist.');
  }

  private async openLink({ body }: ConsoleRequest): Promise<Reply> {
    const { token } = readArgument(LINK, body ?? {});
    const opened = this.portal.open(token);
    if (opened === undefined) {
      throw new ConsoleError(
        'link_invalid',
        'The link is wrong or has expired; ask for a new one.',
      );
    }
    const access = accessOfGrant(opened.grant);
    this.limits.requireRate(access, { path: 'session', perMinute: LINKS_PER_MINUTE });
    const { actor, tenant } = access;
    await this.log.acted({
      by: 'partner',
      action: 'session.start',
      actor: actor!,
      tenant: tenant!,
      outcome: 'done',
    });
    const seconds = Math.floor(this.options.portal!.sessionLifetime / 1_000);
    const reply = json(await this.service.session(access));
    return {
      ...reply,
      headers: { ...reply.headers, 'Set-Cookie': this.cookie(opened.token, seconds) },
    };
  }

  /** @throws {@link ConsoleError} `session_required` */
  private accessOf(call: ConsoleRequest, request: AdapterRequest): ConsoleAccess {
    const { kind } = call;
    if (kind === 'console') {
      const actor = actorOf(this.options.actor(request as never));
      return { kind, capabilities: this.options.capabilities, tenant: undefined, actor };
    }
    const grant = this.grantOf(call);
    if (grant === undefined) {
      throw new ConsoleError(
        'session_required',
        'Open the link that you were sent, or ask for a new one.',
      );
    }
    return accessOfGrant(grant);
  }

  private grantOf({ headers }: ConsoleRequest): PortalGrant | undefined {
    const token = cookieOf(headers.cookie, this.cookieName);
    return token === undefined ? undefined : this.portal.session(token);
  }

  /** Where browsers open the page. A TLS connection shows that it is `https:`; behind a proxy, the options say so. */
  private originsOf(kind: 'console' | 'portal', { headers, socket }: IncomingMessage): string[] {
    const { origins, portal } = this.options;
    const scheme = 'encrypted' in socket && socket.encrypted === true ? 'https' : 'http';
    return [
      ...(origins ?? [`${scheme}://${hostOf(headers)}`]),
      ...(kind === 'portal' && portal !== undefined ? [portal.url.origin] : []),
    ];
  }

  /** Differs by path: a portal below the path of another one is sent the cookies of both. */
  private get cookieName(): string {
    const { protocol, pathname } = this.options.portal!.url;
    const digest = createHash('sha256').update(pathname).digest('hex').slice(0, 8);
    return `${protocol === 'https:' ? '__Secure-' : ''}webhook-portal-${digest}`;
  }

  /** The path is the one that the browser sees, which a proxy may have changed. */
  private cookie(value: string, seconds: number): string {
    const { url, frameAncestors } = this.options.portal!;
    const ofOwnSite = `SameSite=Strict${url.protocol === 'https:' ? '; Secure' : ''}`;
    // Partitioned: each site that shows the portal has sessions of its own. Calls stay protected by their header and origin.
    const scope = frameAncestors.length === 0 ? ofOwnSite : 'SameSite=None; Secure; Partitioned';
    return `${this.cookieName}=${value}; Path=${url.pathname}; Max-Age=${seconds}; HttpOnly; ${scope}`;
  }

  private async sendAsset(
    kind: 'console' | 'portal',
    path: string,
    node: IncomingMessage,
    response: AdapterResponse,
  ): Promise<void> {
    this.assets ??= loadAssets().catch((error: unknown) => {
      this.assets = undefined;
      throw error;
    });
    const asset = (await this.assets).get(path === '' ? 'index.html' : path);
    if (asset === undefined || !['GET', 'HEAD'].includes(node.method ?? '')) {
      throw new ConsoleError('unknown_route', 'The page has no such file.');
    }
    const isPage = asset.type.startsWith('text/html');
    const { brand, portal } = this.options;
    const ancestors = kind === 'portal' ? portal!.frameAncestors : [];
    const headers = {
      'X-Content-Type-Options': 'nosniff',
      ETag: asset.etag,
      Vary: 'Accept-Encoding',
      // The page is guarded, so no shared cache may keep it.
      'Cache-Control': asset.immutable
        ? 'private, max-age=31536000, immutable'
        : 'private, no-cache',
      ...(isPage && pageHeaders(brand, ancestors)),
    };
    const isKnown = node.headers['if-none-match']?.includes(asset.etag) === true;
    if (isKnown) return this.send(response, { status: 304, headers });
    const isGzipped = /\bgzip\b(?!\s*;\s*q=0(\.0*)?\s*(,|$))/i.test(
      node.headers['accept-encoding'] ?? '',
    );
    const described = {
      ...headers,
      'Content-Type': asset.type,
      ...(isGzipped && { 'Content-Encoding': 'gzip' }),
    };
    const body = isGzipped ? asset.gzipped : asset.bytes;
    this.send(response, { status: 200, headers: described, body });
  }

  /** A relative address, since the path that the browser sees is unknown behind a proxy. */
  private redirect(kind: 'console' | 'portal', response: AdapterResponse): void {
    const last = this.pathOf(kind).split('/').at(-1)!;
    this.send(response, { status: 308, headers: { ...COMMON_HEADERS, Location: `${last}/` } });
  }

  private send(response: AdapterResponse, { status, headers, body }: Reply): void {
    const adapter = this.adapterHost.httpAdapter;
    for (const [name, value] of Object.entries(headers)) adapter.setHeader(response, name, value);
    const sent = Buffer.isBuffer(body) ? new StreamableFile(body, { length: body.length }) : body;
    if (sent instanceof StreamableFile) sent.options.type = headers['Content-Type']!;
    void adapter.reply(response, sent ?? null, status);
  }

  private pathOf(kind: 'console' | 'portal'): string {
    return kind === 'console' ? this.options.path : this.options.portal!.path;
  }

  /**
   * The path relative to the page, still encoded: `` for the page, `undefined` without the slash at its end.
   *
   * It is taken from the URL, since adapters decode an id with a slash differently. Anything may be in front: a prefix, a version.
   */
  private pathBelow(kind: 'console' | 'portal', node: IncomingMessage): string | undefined {
    const { originalUrl, url = '' } = node as { originalUrl?: string; url?: string };
    const path = (originalUrl ?? url).replace(/[?#].*$/s, '');
    const mounted = `/${this.pathOf(kind)}`;
    // Express ignores the case of a path.
    const startFrom = (index: number): number =>
      `${path}/`.toLowerCase().indexOf(`${mounted}/`.toLowerCase(), index);
    const prefix = this.config.getGlobalPrefix().replace(/^\/+|\/+$/g, '');
    // The prefix may contain the path itself, and may be excluded for it.
    const afterPrefix = path.startsWith(`/${prefix}/`) ? startFrom(prefix.length + 1) : -1;
    const start = Math.max(afterPrefix, startFrom(0));
    if (start === -1)
      throw new ConsoleError('unknown_route', 'The path is encoded in another way.');
    const below = path.slice(start + mounted.length);
    return below === '' ? undefined : below.slice(1);
  }
}

/** Finds the call of a path, and the id in it. */
function routeOf(
  routes: readonly ConsoleRoute[],
  { method, segments }: ConsoleRequest,
): { readonly route: ConsoleRoute; readonly id: string } | undefined {
  const wanted = method === 'HEAD' ? 'GET' : method;
  for (const route of routes) {
    const pattern = route.path.split('/');
    if (route.method !== wanted || pattern.length !== segments.length) continue;
    if (pattern.every((one, i) => one === ':id' || one === segments[i])) {
      return { route, id: segments[pattern.indexOf(':id')] ?? '' };
    }
  }
  return undefined;
}

async function readCall(
  kind: 'console' | 'portal',
  path: string,
  origins: readonly string[],
  request: AdapterRequest,
  node: IncomingMessage,
): Promise<ConsoleRequest> {
  const query = /\?([^#]*)/s.exec(node.url ?? '')?.[1] ?? '';
  return {
    kind,
    method: node.method ?? '',
    segments: path.slice('api/'.length).split('/').map(decoded),
    query: new URLSearchParams(query),
    origins,
    headers: node.headers,
    body: await bodyOf(request, node),
  };
}

/** The body of a change. An application without a parser leaves the stream unread, and others keep the bytes or a string. */
async function bodyOf({ body }: AdapterRequest, node: IncomingMessage): Promise<unknown> {
  if (['GET', 'HEAD'].includes(node.method ?? '')) return undefined;
  const isKept = Buffer.isBuffer(body) || typeof body === 'string';
  if (!isKept && body !== undefined && body !== null) return body;
  const chunks = new ByteChunks();
  const isUnread = !node.readableDidRead && !node.readableEnded;
  const source = isKept ? [Buffer.from(body as string)] : isUnread ? node : [];
  for await (const chunk of source as AsyncIterable<Buffer>) {
    chunks.add(chunk);
    if (chunks.length > MAX_BODY) {
      throw new ConsoleError('invalid_option', 'The body is too large.');
    }
  }
  if (chunks.length === 0) return undefined;
  try {
    return JSON.parse(chunks.bytes().toString()) as unknown;
  } catch {
    throw new ConsoleError('invalid_option', 'The body is not JSON.');
  }
}

/** Whether the caller may know what a call is about. */
async function isKnown({ owner }: ConsoleRoute, call: ConsoleCall): Promise<boolean> {
  if (owner === undefined) return true;
  const { tenant } = call.access;
  try {
    const found = await owner(call);
    return tenant === undefined || found === undefined || found === tenant;
  } catch {
    return false;
  }
}

function decoded(segment: string): string {
  try {
    return decodeURIComponent(segment);
  } catch {
    throw new ConsoleError('invalid_option', 'The path is not percent-encoded correctly.');
  }
}

function json(answer: unknown, status = 200): Reply {
  if (answer === undefined) return { status: 204, headers: COMMON_HEADERS };
  const headers = { ...COMMON_HEADERS, 'Content-Type': 'application/json; charset=utf-8' };
  return { status, headers, body: JSON.stringify(answer) };
}

function accessOfGrant(grant: PortalGrant): ConsoleAccess {
  const { tenant, capabilities, expiresAt } = grant;
  return { kind: 'portal', capabilities, tenant, actor: `portal:${tenant}`, expiresAt, grant };
}

/** Fails without a name that can be recorded, since its actions would have no author. */
function actorOf(returned: unknown): string | undefined {
  if (returned === undefined || returned === null) return undefined;
  if (typeof returned === 'string' || typeof returned === 'number') {
    return String(returned).slice(0, 255);
  }
  throw new ConsoleError(
    'internal_error',
    `The option "actor" of WebhookConsoleModule returned a value of type ${typeof returned}; return a string, or undefined for a user without a name, and no promise.`,
  );
}

function cookieOf(header: string | undefined, name: string): string | undefined {
  const found = header?.split(/;\s*/).filter((one) => one.startsWith(`${name}=`)) ?? [];
  // Another site below the same domain may have set a second one.
  return found.length === 1 ? found[0]!.slice(name.length + 1) : undefined;
}
