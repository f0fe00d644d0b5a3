import { parseJson, structureFault } from '../token/json/strict-json.js';
import { MAX_DATA_DEPTH, MAX_INLINE_BYTES } from '../token/webhook-token.constants.js';
import type { DeliveryPayload } from '../queue/webhook-delivery.interface.js';

const OPEN_BRACE = 0x7b;

/** Bytes of inline data that a signer's tokens carry: it may be elsewhere, and paid by the byte. */
export function inlineLimit({
  inlineLimit: limit = MAX_INLINE_BYTES,
}: {
  readonly inlineLimit?: number | undefined;
}): number {
  return Math.min(limit, MAX_INLINE_BYTES);
}

/** Payload that fits into a token: nothing at all, or an object. */
export interface InlinePayload {
  readonly data?: object;
}

/**
 * Reads the payload as the token's inline data.
 *
 * @param limit - bytes that may be signed; default 6000
 * @returns `undefined` where it must be sent as a body: anything but an object, more bytes than the limit, or
 * something that receivers refuse in a token
 */
export function inlinePayload(
  { kind, bytes, contentType }: DeliveryPayload,
  limit = MAX_INLINE_BYTES,
): InlinePayload | undefined {
  if (kind !== 'json' || contentType !== 'application/json') return undefined;
  if (bytes === undefined) return {};
  if (bytes.byteLength > limit || bytes[0] !== OPEN_BRACE) return undefined;
  const text = Buffer.from(bytes.buffer, bytes.byteOffset, bytes.byteLength).toString();
  const data = parseJson(text) as object;
  return structureFault(data, MAX_DATA_DEPTH) === undefined ? { data } : undefined;
}

/**
 * Bytes of a request's head on the wire: what servers and proxies hold against their limits.
 *
 * @param headers - all of them but Host and Connection, which the connection adds
 */
export function requestHeadBytes(
  method: string,
  url: string,
  headers: Readonly<Record<string, string>>,
): number {
  const { pathname, search, host } = new URL(url);
  const lines = [
    `${method} ${pathname}${search} HTTP/1.1`,
    `Host: ${host}`,
    'Connection: keep-alive',
    ...Object.entries(headers).map(([name, value]) => `${name}: ${value}`),
  ];
  const LINE_END = 2;
  return lines.reduce((sum, line) => sum + Buffer.byteLength(line) + LINE_END, LINE_END);
}
