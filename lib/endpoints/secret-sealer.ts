import {
  createCipheriv,
  createDecipheriv,
  createSecretKey,
  hkdfSync,
  type KeyObject,
  randomBytes,
  randomUUID,
} from 'node:crypto';
import { WebhookStoreError } from '../errors/webhook.error.js';
import { parseSigningKey } from '../token/keys/signing-key.js';
import type { SealedEndpointKey } from './endpoint-store.js';

const SECRET_BYTES = 32;

/** A key for an endpoint, sealed; the secret in the clear only where it was made here. */
interface MadeEndpointKey {
  readonly key: SealedEndpointKey;
  readonly secret?: string;
}

/**
 * Makes a key for an endpoint, of its own secret or of a random one.
 *
 * @param notBefore - epoch milliseconds from which it signs
 */
export function makeEndpointKey(
  sealer: SecretSealer,
  endpointId: string,
  given: string | undefined,
  notBefore: number,
): MadeEndpointKey {
  const secret = given ?? randomBytes(SECRET_BYTES).toString('base64');
  const kid = randomUUID();
  const key = { kid, sealed: sealer.seal(endpointId, kid, secret), notBefore };
  return given === undefined ? { key, secret } : { key };
}

/**
 * Puts a new key behind others. Those that would have come later never signed, and never will.
 *
 * @param overlap - milliseconds for which the old ones go on signing; without any, they are gone
 */
export function rotatedKeys(
  keys: readonly SealedEndpointKey[],
  next: SealedEndpointKey,
  overlap: number,
): SealedEndpointKey[] {
  if (overlap === 0) return [next];
  return [...keys.filter(({ notBefore }) => notBefore < next.notBefore), next];
}

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
function sealingKeyObject(key: string): KeyObject {
  // Derived, whatever the form: a text is no uniform key, and a key used elsewhere too is another one here.
  const derived = hkdfSync('sha256', bytesOf(key), '', 'nestjs-webhook-token/endpoint', KEY_BYTES);
  return createSecretKey(Buffer.from(derived));
}

function bytesOf(key: string): Buffer {
  if (HEX.test(key)) return Buffer.from(key, 'hex');
  return BASE64.test(key) ? Buffer.from(key, 'base64') : Buffer.from(key);
}

const CIPHER = 'aes-256-gcm';
const IV_BYTES = 12;
const TAG_BYTES = 16;

/** `v1.<IV, ciphertext and tag in base64url>.<id of the sealing key>`; the id may hold anything, so it is last. */
const SEALED = /^v1\.([A-Za-z0-9_-]+)\.(.+)$/s;

/** Seals the secrets of endpoints for a store, and opens them: AES-256-GCM, bound to endpoint and `kid`. */
export class SecretSealer {
  /** Not printed, whoever prints the options. */
  readonly #keys: ReadonlyMap<string, KeyObject>;
  private readonly current: string;

  /** @param keys - without faults, at least one; the first seals, all of them open */
  constructor(keys: readonly SealingKey[]) {
    this.#keys = new Map(keys.map(({ id, key }) => [id, sealingKeyObject(key)]));
    this.current = keys[0]!.id;
  }

  /** One whose key nobody else has, for a store that ends with this process. */
  static ofProcess(): SecretSealer {
    return new SecretSealer([{ id: randomUUID(), key: randomBytes(32).toString('base64') }]);
  }

  /** Seals a secret with the first key. */
  seal(endpointId: string, kid: string, secret: string): string {
    const iv = randomBytes(IV_BYTES);
    const cipher = createCipheriv(CIPHER, this.#keys.get(this.current)!, iv);
    cipher.setAAD(identity(this.current, endpointId, kid));
    const sealed = Buffer.concat([
      iv,
      cipher.update(secret, 'utf8'),
      cipher.final(),
      cipher.getAuthTag(),
    ]);
    return `v1.${sealed.toString('base64url')}.${this.current}`;
  }

  /**
   * Opens a secret.
   *
   * @throws {@link WebhookStoreError} `sealed_secret_unreadable` where the key is not there any more, or what is stored
   *   is not what was sealed for this endpoint
   */
  open(endpointId: string, { kid, sealed }: Pick<SealedEndpointKey, 'kid' | 'sealed'>): string {
    const [, text, keyId] = SEALED.exec(sealed) ?? [];
    if (text === undefined || keyId === undefined) throw damaged(endpointId);
    const key = this.#keys.get(keyId);
    if (key === undefined) throw keyIsMissing(endpointId, keyId);
    const bytes = Buffer.from(text, 'base64url');
    try {
      const decipher = createDecipheriv(CIPHER, key, bytes.subarray(0, IV_BYTES), {
        authTagLength: TAG_BYTES,
      });
      decipher.setAAD(identity(keyId, endpointId, kid));
      decipher.setAuthTag(bytes.subarray(-TAG_BYTES));
      const opened = decipher.update(bytes.subarray(IV_BYTES, -TAG_BYTES));
      return Buffer.concat([opened, decipher.final()]).toString();
    } catch {
      throw damaged(endpointId);
    }
  }

  /** Whether a secret was sealed with the key that seals now. */
  isCurrent({ sealed }: Pick<SealedEndpointKey, 'sealed'>): boolean {
    return SEALED.exec(sealed)?.[2] === this.current;
  }
}

/** What a sealed secret belongs to. Each part behind its length, so that no two lists of parts are the same bytes. */
function identity(...parts: readonly string[]): Buffer {
  return Buffer.concat(
    parts.flatMap((part) => {
      const bytes = Buffer.from(part);
      const length = Buffer.alloc(4);
      length.writeUInt32BE(bytes.length);
      return [length, bytes];
    }),
  );
}

function keyIsMissing(endpointId: string, keyId: string): WebhookStoreError {
  return new WebhookStoreError(
    'sealed_secret_unreadable',
    `The secret of endpoint "${endpointId}" was sealed with the key "${keyId}", which is none of the sealingKeys: add it behind the first, or rotate the endpoint's key with overlap 0.`,
  );
}

function damaged(endpointId: string): WebhookStoreError {
  return new WebhookStoreError(
    'sealed_secret_unreadable',
    `The secret of endpoint "${endpointId}" cannot be opened: its sealing key has another value now, or what is stored was changed or moved. Correct the sealingKeys, or rotate the endpoint's key with overlap 0.`,
  );
}
