import { createHash } from 'node:crypto';
import type { IncomingMessage, ServerResponse } from 'node:http';
import type { WebhookKeySet } from './webhook.jwks.js';

const MS_PER_SECOND = 1_000;

/** Writes a key set as HTTP, with what caches need to know (RFC 9111) and nothing that ties it to a visitor. */
export class JwksAnswer {
  private readonly cacheControl: string;

  /** @param maxAge - milliseconds */
  constructor(maxAge: number) {
    this.cacheControl = `public, max-age=${Math.floor(maxAge / MS_PER_SECOND)}`;
  }

  send(request: IncomingMessage, response: ServerResponse, keySet: WebhookKeySet): void {
    const body = Buffer.from(JSON.stringify(keySet));
    const etag = `"${createHash('sha256').update(body).digest('base64url')}"`;
    response.setHeader('Cache-Control', this.cacheControl);
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

  /** The keys could not be had; caches go on with what they have. */
  sendUnavailable(response: ServerResponse): void {
    response.writeHead(503, {
      'Cache-Control': 'no-store',
      'Retry-After': '5',
      'Content-Length': 0,
    });
    response.end();
  }

  refuseMethod(response: ServerResponse): void {
    response.writeHead(405, { Allow: 'GET, HEAD', 'Content-Length': 0 }).end();
  }
}

/** RFC 9110, section 13.1.2: a list, any of which will do, compared weakly; or `*`. */
function isCurrent(ifNoneMatch: string | undefined, etag: string): boolean {
  if (ifNoneMatch === undefined) return false;
  return ifNoneMatch
    .split(',')
    .map((tag) => tag.trim().replace(/^W\//, ''))
    .some((tag) => tag === '*' || tag === etag);
}
