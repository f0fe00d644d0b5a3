import type { IncomingHttpHeaders, IncomingMessage } from 'node:http';
import { isLoopback } from '../egress/egress-policy.js';
import type { ConsoleAction, ConsoleCapability } from './console-api.js';
import { ConsoleError } from './console-problem.js';
import type { PortalGrant } from './webhook.portal.js';

/** A request of the page, independent of the HTTP adapter. */
export interface ConsoleRequest {
  readonly kind: 'console' | 'portal';
  readonly method: string;
  /** Segments after `api/`, decoded. */
  readonly segments: readonly string[];
  /** Origins from which the page is served. */
  readonly origins: readonly string[];
  readonly query: URLSearchParams;
  readonly headers: IncomingHttpHeaders;
  readonly body: unknown;
}

/** Who makes a request, and what it may do. */
export interface ConsoleAccess {
  readonly kind: 'console' | 'portal';
  readonly capabilities: readonly ConsoleCapability[];
  /** The only tenant that is visible; `undefined` for all. */
  readonly tenant: string | undefined;
  readonly actor: string | undefined;
  readonly expiresAt?: Date;
  readonly grant?: PortalGrant;
}

/** Who makes a request, for the activity log. */
export function activityOriginOf({ kind }: ConsoleAccess): 'operator' | 'partner' {
  return kind === 'console' ? 'operator' : 'partner';
}

/** @throws {@link ConsoleError} `missing_capability` */
export function requireCapabilities(
  { capabilities }: ConsoleAccess,
  needed: readonly ConsoleCapability[],
): void {
  const missing = needed.filter((one) => !capabilities.includes(one));
  if (missing.length === 0) return;
  throw new ConsoleError(
    'missing_capability',
    `This needs the capability ${missing.join(' and ')}.`,
  );
}

/**
 * Refuses a request that another site may have caused. A custom header needs the consent of CORS, and an application may give it too
 * generously, so the origin is checked too, also of a read: a console without a guard needs no cookie that browsers could withhold.
 * Headers of proxies are not believed, since any client can send them.
 *
 * @throws {@link ConsoleError} `cross_site_request`
 */
export function requireSameSite({ method, headers, body, origins }: ConsoleRequest): void {
  const refuse = (why: string): never => {
    throw new ConsoleError('cross_site_request', `The request was refused: ${why}.`);
  };
  const isChange = method !== 'GET' && method !== 'HEAD';
  if (isChange && headers['webhook-console'] !== '1') {
    refuse('the header "Webhook-Console: 1" is missing');
  }
  const hasBody = isChange && body !== undefined;
  if (hasBody && !/^application\/json\s*(?:;|$)/i.test(headers['content-type'] ?? '')) {
    refuse('its body is not application/json');
  }
  const site = headers['sec-fetch-site'];
  if (site !== undefined) {
    // `none`: a user has typed the address.
    const isOwn = site === 'same-origin' || (site === 'none' && !isChange);
    if (!isOwn) refuse('another site sent it');
    return;
  }
  const { origin } = headers;
  if (origin !== undefined && !origins.includes(origin)) {
    refuse(
      'another origin sent it. If a proxy changes the Host header, set the option "origins" of the console',
    );
  }
}

/** The host of a request with its port. HTTP/2 sends `:authority` in place of `Host`, and it counts if both are sent. */
export function hostOf(headers: IncomingHttpHeaders): string {
  return String(headers[':authority'] ?? headers.host ?? '');
}

/** Headers that only proxies and tunnels add. Not every one of them sends `X-Forwarded-For`. */
const PROXY_HEADERS = [
  'forwarded',
  'via',
  'x-real-ip',
  'x-client-ip',
  'x-forwarded-host',
  'x-forwarded-proto',
  'x-forwarded-server',
  'cf-connecting-ip',
  'true-client-ip',
  'fastly-client-ip',
  'fly-client-ip',
];

/**
 * Refuses a request that was not made on this machine for this machine. A page of another site could let its own name resolve to
 * this machine; other machines can send any host name; and a tunnel or proxy that forwards from elsewhere may replace it.
 *
 * @throws {@link ConsoleError} `host_not_allowed`
 */
export function requireLoopback({
  headers,
  socket,
}: Pick<IncomingMessage, 'headers' | 'socket'>): void {
  const host = hostOf(headers).replace(/:\d+$/, '');
  const addresses = [socket.remoteAddress ?? '', ...listOf(headers['x-forwarded-for'])];
  const isLocal =
    PROXY_HEADERS.every((name) => headers[name] === undefined) &&
    [host, ...addresses].every(isLoopback);
  if (isLocal) return;
  throw new ConsoleError(
    'host_not_allowed',
    'No guard protects the console, so it answers only this machine, at localhost, 127.0.0.1 or [::1]. Add a guard to open it to others.',
  );
}

function listOf(header: string | string[] | undefined): string[] {
  return header === undefined
    ? []
    : String(header)
        .split(',')
        .map((one) => one.trim());
}

/** What an action changed, for the record. */
export interface ActionFacts {
  readonly action: ConsoleAction;
  readonly target?: string | undefined;
  /** The tenant of the target, if it is known only now. */
  readonly tenant?: string | undefined;
  readonly count?: number;
}
