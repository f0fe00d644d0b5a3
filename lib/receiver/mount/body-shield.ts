import type { IncomingHttpHeaders, IncomingMessage } from 'node:http';

/** The headers by which parsers tell that there is a body, and whether it is theirs. */
const BODY_HEADERS = ['content-type', 'content-length', 'transfer-encoding'] as const;

const shielded = new WeakMap<IncomingMessage, IncomingHttpHeaders>();

/**
 * Makes the application's body parsers believe that this request has no body, so that its exact octets
 * reach the guard unread.
 */
export function shieldBody(request: IncomingMessage): void {
  if (shielded.has(request)) return;
  const aside: IncomingHttpHeaders = {};
  for (const name of BODY_HEADERS) {
    const value = request.headers[name];
    if (value === undefined) continue;
    aside[name] = value;
    delete request.headers[name];
  }
  shielded.set(request, aside);
}

/** Puts the headers back. */
export function unshieldBody(request: IncomingMessage): void {
  const aside = shielded.get(request);
  if (aside === undefined) return;
  shielded.delete(request);
  Object.assign(request.headers, aside);
}
