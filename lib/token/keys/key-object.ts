import { KeyObject, type webcrypto } from 'node:crypto';

/** Tells a CryptoKey, also one of another realm. */
export function isCryptoKey(material: unknown): material is webcrypto.CryptoKey {
  return Object.prototype.toString.call(material) === '[object CryptoKey]';
}

/** @returns `undefined` for material that must be read first, and for none */
export function asKeyObject(material: unknown): KeyObject | undefined {
  if (material instanceof KeyObject) return material;
  if (!isCryptoKey(material)) return undefined;
  try {
    return KeyObject.from(material);
  } catch {
    return undefined;
  }
}
