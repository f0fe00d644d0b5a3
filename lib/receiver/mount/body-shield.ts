import type { IncomingHttpHeaders, IncomingMessage } from 'node:http';

/** The headers by which parsers recognise a body and its type. */
const BODY_HEADERS = ['content-type', 'content-length', 'transfer-encoding'] as const;

/** Holds the removed headers; a property of the request for the same reason as in `request-reception`. */
const ASIDE = Symbol('nestjs-webhook-token:aside');

type Shieldable = IncomingMessage & { [ASIDE]?: IncomingHttpHeaders | undefined };

/** Hides the body of a request from the application's parsers, so that its exact bytes reach the guard unread. */
export function shieldBody(request: Shieldable): void {
  if (request[ASIDE] !== undefined) return;
  const aside: IncomingHttpHeaders = {};
  for (const name of BODY_HEADERS) {
    const value = request.headers[name];
    if (value === undefined) continue;
    aside[name] = value;
    delete request.headers[name];
  }
  request[ASIDE] = aside;
}

/** Restores the headers. */
export function unshieldBody(request: Shieldable): void {
  const aside = request[ASIDE];
  if (aside === undefined) return;
  request[ASIDE] = undefined;
  Object.assign(request.headers, aside);
}
