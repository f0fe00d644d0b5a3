import { createSecretKey, hkdfSync, type KeyObject } from 'node:crypto';
import { parseSigningKey } from '../token/keys/signing-key.js';

const KEY_BYTES = 32;
const HEX = /^[0-9a-f]{64}$/i;
/** 32 bytes in base64 or base64url, with its padding or without. */
const BASE64 = /^[A-Za-z0-9+/_-]{43}=?$/;

/** A key that seals the secrets of endpoints before they are stored. */
export interface SealingKey {
  /** Names the key in what it has sealed; 1 to 256 characters, unique. */
  readonly id: string;
  /** 32 bytes as base64, base64url or hexadecimal; or another text of at least 32 bytes. Never stored. */
  readonly key: string;
}

/** Says what is wrong with the text of a sealing key, without quoting it; `undefined` for a good one. */
export function sealingKeyFault(key: unknown): string | undefined {
  const remedy = 'make one with "openssl rand -base64 32"';
  if (typeof key !== 'string') return `must be a text: ${remedy}`;
  const { length } = bytesOf(key);
  if (length < KEY_BYTES) return `has ${length} bytes, and needs at least ${KEY_BYTES}: ${remedy}`;
  return parseSigningKey(key).fault;
}

/** The AES-256 key behind the text of a sealing key that has no fault. */
export function sealingKeyObject(key: string): KeyObject {
  // Derived, whatever the form: a text is no uniform key, and a key used elsewhere too is another one here.
  const derived = hkdfSync('sha256', bytesOf(key), '', 'nestjs-webhook-token/endpoint', KEY_BYTES);
  return createSecretKey(Buffer.from(derived));
}

function bytesOf(key: string): Buffer {
  if (HEX.test(key)) return Buffer.from(key, 'hex');
  return BASE64.test(key) ? Buffer.from(key, 'base64') : Buffer.from(key);
}
