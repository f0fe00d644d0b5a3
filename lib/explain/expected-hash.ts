import { isObject } from '../token/json/strict-json.js';
import { isHashAlgorithm, parsePayloadHash, type PayloadHash } from '../token/payload-hash.js';

/**
 * Reads the digest that a token names for its body, in the spelling of whichever wire format.
 *
 * @param webhook - the claim: `hash` as `sha256:…` or, in the second Internet-Draft, `sha-256:…`; in the first,
 *   `data` as `{ hash, hashAlg }` with SHA3-256 where no algorithm is named
 * @returns `undefined` where there is none that could be compared
 */
export function expectedHash(webhook: Readonly<Record<string, unknown>>): PayloadHash | undefined {
  const { hash, data } = webhook;
  if (typeof hash === 'string') return read(hash);
  if (!isObject(data) || typeof data['hash'] !== 'string') return undefined;
  const { hashAlg = 'SHA3-256' } = data;
  return typeof hashAlg === 'string' ? read(`${hashAlg}:${data['hash']}`) : undefined;
}

function read(text: string): PayloadHash | undefined {
  const colon = text.indexOf(':');
  const name = text.slice(0, colon).toLowerCase().replace(/^sha-/, 'sha');
  if (!isHashAlgorithm(name)) return undefined;
  try {
    return parsePayloadHash(`${name}${text.slice(colon)}`);
  } catch {
    return undefined;
  }
}
