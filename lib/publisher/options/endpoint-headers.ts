import { validateHeaderName, validateHeaderValue } from 'node:http';

/**
 * They frame the request or its body, authenticate it, or are for one connection: a second opinion on any of it
 * is how requests are smuggled.
 */
const REFUSED = new Set([
  'authorization',
  'connection',
  'content-encoding',
  'content-length',
  'content-type',
  'expect',
  'host',
  'keep-alive',
  'proxy-authorization',
  'proxy-connection',
  'te',
  'trailer',
  'transfer-encoding',
  'upgrade',
]);

/** Says what is wrong with a header the user configured, and what to do; `undefined` for a good one. */
export function headerFault(name: string, value: unknown): string | undefined {
  if (REFUSED.has(name.toLowerCase())) {
    return 'is set by the library, which frames and authenticates the request: remove it';
  }
  try {
    validateHeaderName(name);
  } catch {
    return 'is no header name';
  }
  if (typeof value !== 'string') return 'must be a text';
  try {
    validateHeaderValue(name, value);
    return undefined;
  } catch {
    return 'holds a character that a header cannot carry';
  }
}
