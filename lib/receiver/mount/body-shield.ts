import type { IncomingHttpHeaders, IncomingMessage } from 'node:http';
import {
  BadRequestException,
  type CallHandler,
  type ExecutionContext,
  type NestInterceptor,
} from '@nestjs/common';
import type { Observable } from 'rxjs';
import { hasTrustedToken } from '../../request/open-request.js';
import {
  type AdapterRequest,
  fromNodeRequest,
  hasAmbiguousLength,
  nodeRequest,
  receptionOf,
} from '../node-http.js';
import type { ResolvedReceiver } from '../receiver-options.resolver.js';

/**
 * Keeps the application's parsers away from the bodies of signed requests to routes with the webhook guard. Mounted paths do not
 * need it: their requests never reach a parser.
 */
export class BodyShield {
  private readonly guardedReceivers: ResolvedReceiver[] = [];

  /** @param receivers - those whose events the guard of a route may let in */
  addGuarded(receivers: Iterable<ResolvedReceiver>): void {
    this.guardedReceivers.push(...receivers);
  }

  /**
   * Hides the body of a request that a trusted sender signed, since its exact bytes belong to the guard. The token decides and not
   * the path, which no adapter reveals before its router has run.
   *
   * @param next - called when the headers are decided on
   */
  hide(request: IncomingMessage, next: () => void): void {
    // A parser would wait for a body that may never arrive.
    if (hasAmbiguousLength(request)) {
      shieldBody(request);
      return next();
    }
    const { authorization } = request.headers;
    if (request.method !== 'POST' || authorization === undefined) return next();
    if (this.guardedReceivers.length === 0) return next();
    void this.shieldSigned(request).finally(next);
  }

  private async shieldSigned(request: IncomingMessage): Promise<void> {
    const { headers } = fromNodeRequest(request, { kind: 'consumed' });
    for (const receiver of this.guardedReceivers) {
      if (await hasTrustedToken(headers, receiver)) return shieldBody(request);
    }
  }
}

/** The headers by which parsers recognise a body and its type. */
const BODY_HEADERS = ['content-type', 'content-length', 'transfer-encoding'] as const;

/** Holds the removed headers; `null` once they are restored. */
const ASIDE = Symbol('nestjs-webhook-token:aside');

type Shieldable = IncomingMessage & { [ASIDE]?: IncomingHttpHeaders | null };

/** Hides the body of a request from the application's parsers, so that its exact bytes reach the guard unread. */
export function shieldBody(request: Shieldable): void {
  if (wasShielded(request)) return;
  const aside: IncomingHttpHeaders = {};
  for (const name of BODY_HEADERS) {
    const value = request.headers[name];
    if (value === undefined) continue;
    aside[name] = value;
    delete request.headers[name];
  }
  request[ASIDE] = aside;
}

export function unshieldBody(request: Shieldable): void {
  const aside = request[ASIDE];
  if (!aside) return;
  request[ASIDE] = null;
  Object.assign(request.headers, aside);
}

function wasShielded(request: Shieldable): boolean {
  return request[ASIDE] !== undefined;
}

/**
 * Refuses a signed request with a body on a route without the guard: its token has kept the application's parsers away before the
 * router chose a route, so that neither middleware nor guards have seen the body.
 */
export class UnguardedBodyInterceptor implements NestInterceptor {
  intercept(context: ExecutionContext, next: CallHandler): Observable<unknown> {
    if (context.getType() === 'http') {
      refuseUnseenBody(context.switchToHttp().getRequest<AdapterRequest>());
    }
    return next.handle();
  }
}

function refuseUnseenBody(request: AdapterRequest): void {
  const node = nodeRequest(request);
  if (node.method !== 'POST' || !wasShielded(node) || receptionOf(request) !== undefined) return;
  unshieldBody(node);
  const { 'content-length': length = '0', 'transfer-encoding': encoding } = node.headers;
  if (encoding === undefined && Number(length) === 0) return;
  throw new BadRequestException(
    'a request with a webhook token and a body needs a route for webhooks: a mounted path, @WebhookRoute() or WebhookGuard',
  );
}
