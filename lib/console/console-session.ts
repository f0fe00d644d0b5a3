import type { IncomingHttpHeaders } from 'node:http';
import type { ConsoleAction, ConsoleCapability } from './console-api.js';
import { ConsoleError } from './console-problem.js';

/** A request of the page, independent of the HTTP adapter. */
export interface ConsoleRequest {
  readonly kind: 'console' | 'portal';
  readonly method: string;
  /** Segments after `api/`, decoded. */
  readonly segments: readonly string[];
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
 * generously, so the origin is checked too.
 *
 * @throws {@link ConsoleError} `cross_site_request`
 */
export function requireSameSite(headers: IncomingHttpHeaders, hasBody: boolean): void {
  const { origin, host } = headers;
  const refuse = (why: string): never => {
    throw new ConsoleError('cross_site_request', `The request was refused: ${why}.`);
  };
  if (headers['webhook-console'] !== '1') refuse('the header "Webhook-Console: 1" is missing');
  if (hasBody && !/^application\/json\s*(?:;|$)/i.test(headers['content-type'] ?? '')) {
    refuse('its body is not application/json');
  }
  const site = headers['sec-fetch-site'];
  if (site !== undefined) {
    if (site !== 'same-origin') refuse('another site sent it');
    return;
  }
  if (origin === undefined) return;
  const forwarded = [headers['x-forwarded-host'] ?? []].flat()[0]?.split(',')[0]?.trim();
  const sender = URL.canParse(origin) ? new URL(origin).host : undefined;
  if (sender === undefined || (sender !== host && sender !== forwarded)) {
    refuse('another origin sent it');
  }
}

/** What an action changed, for the record. */
export interface ActionFacts {
  readonly action: ConsoleAction;
  readonly target?: string | undefined;
  readonly count?: number;
}
