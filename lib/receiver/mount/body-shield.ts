import type { IncomingHttpHeaders, IncomingMessage } from 'node:http';

/** The headers by which parsers tell that there is a body, and whether it is theirs. */
const BODY_HEADERS = ['content-type', 'content-length', 'transfer-encoding'] as const;

/** Where a request keeps what was put aside; for the reason, see `reception-of-request`. */
const ASIDE = Symbol('nestjs-webhook-token:aside');

type Shieldable = IncomingMessage & { [ASIDE]?: IncomingHttpHeaders | undefined };

/**
 * Makes the application's body parsers believe that this request has no body, so that its exact octets
 * reach the guard unread.
 */
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

/** Puts the headers back. */
export function unshieldBody(request: Shieldable): void {
  const aside = request[ASIDE];
  if (aside === undefined) return;
  request[ASIDE] = undefined;
  Object.assign(request.headers, aside);
}
