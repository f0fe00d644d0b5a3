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
import { isStandardWebhooks } from '../sending/sent-profile.js';
import { parseSigningKey } from '../token/keys/signing-key.js';
import type { SentProfile } from '../token/webhook-token.constants.js';
import type { EndpointStore, SealedEndpointKey, StoredEndpoint } from './endpoint-store.js';
import { openCredentials } from './stored-credentials.js';

const SECRET_BYTES = 32;

/** A sealed key; with the secret in the clear if it was generated here. */
interface NewEndpointKey {
  readonly key: SealedEndpointKey;
  readonly secret?: string;
}

/**
 * Seals a new key for an endpoint: the secret passed, or a random one, which Standard Webhooks prefix.
 *
 * @param notBefore - epoch milliseconds from which it signs
 */
export function makeEndpointKey(
  sealer: SecretSealer,
  endpointId: string,
  { given, profile }: { readonly given: string | undefined; readonly profile: SentProfile },
  notBefore: number,
): NewEndpointKey {
  const prefix = isStandardWebhooks(profile) ? 'whsec_' : '';
  const secret = given ?? `${prefix}${randomBytes(SECRET_BYTES).toString('base64')}`;
  const kid = randomUUID();
  const key = { kid, sealed: sealer.seal(endpointId, kid, secret), notBefore };
  return given === undefined ? { key, secret } : { key };
}

/**
 * Appends a new key. Keys that would have begun to sign later than it are dropped, but never the current one: its time is later
 * if the clock was set back.
 *
 * @param keys - the current one, and those that would follow it
 * @param overlap - milliseconds for which the old keys go on signing; with 0 they are dropped
 */
export function rotatedKeys(
  keys: readonly SealedEndpointKey[],
  next: SealedEndpointKey,
  overlap: number,
): SealedEndpointKey[] {
  if (overlap === 0) return [next];
  return [...keys.filter((key, index) => index === 0 || key.notBefore < next.notBefore), next];
}

const KEY_BYTES = 32;
const HEX = /^[0-9a-f]{64}$/i;
/** 32 bytes in base64 or base64url, with or without padding. */
const BASE64 = /^[A-Za-z0-9+/_-]{43}=?$/;

/** A key that encrypts the secrets of endpoints before they are stored. */
export interface SealingKey {
  /** Stored with everything the key has sealed; 1 to 256 characters, unique. */
  readonly id: string;
  /** 32 bytes as base64, base64url or hexadecimal; or any other string of at least 32 bytes. Never stored. */
  readonly key: string;
}

/** Says what is wrong with a sealing key, without quoting it; `undefined` for a valid one. */
export function sealingKeyProblem(key: unknown): string | undefined {
  const remedy = 'make one with "openssl rand -base64 32"';
  if (typeof key !== 'string') return `must be a string: ${remedy}`;
  const { length } = bytesOf(key);
  if (length < KEY_BYTES) return `has ${length} bytes, and needs at least ${KEY_BYTES}: ${remedy}`;
  if (/^(-----BEGIN|\{)/.test(key)) return `is a PEM or JWK key, not a random one: ${remedy}`;
  return parseSigningKey(key).problem;
}

/** Derives the AES-256 key of a valid sealing key. */
function sealingKeyObject(key: string): KeyObject {
  // Always derived: a passphrase is not a uniform key, and a key that is used elsewhere becomes a separate one.
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

/** `v1.<IV, ciphertext and tag in base64url>.<id of the sealing key>`; the id may contain dots, so it is last. */
const SEALED = /^v1\.([A-Za-z0-9_-]+)\.(.+)$/s;

/** Encrypts and decrypts the secrets of endpoints with AES-256-GCM, bound to the endpoint and the `kid`. */
export class SecretSealer {
  /** Private, so that `util.inspect` of the options does not show them. */
  readonly #keys: ReadonlyMap<string, KeyObject>;
  private readonly current: string;

  /** @param keys - at least one, all valid; the first encrypts, all of them decrypt */
  constructor(keys: readonly SealingKey[]) {
    this.#keys = new Map(keys.map(({ id, key }) => [id, sealingKeyObject(key)]));
    this.current = keys[0]!.id;
  }

  /** A sealer with a random key, for a store that ends with this process. */
  static ofProcess(): SecretSealer {
    return new SecretSealer([{ id: randomUUID(), key: randomBytes(32).toString('base64') }]);
  }

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
   * Decrypts a secret.
   *
   * @param kind - what errors call it
   * @throws {@link WebhookStoreError} `sealed_secret_unreadable` if the sealing key is missing, or the stored value was not
   *   sealed for this endpoint
   */
  open(
    endpointId: string,
    { kid, sealed }: Pick<SealedEndpointKey, 'kid' | 'sealed'>,
    kind: keyof typeof REPLACED_BY = 'secret',
  ): string {
    const [, text, keyId] = SEALED.exec(sealed) ?? [];
    if (text === undefined || keyId === undefined) throw damaged(endpointId, kind);
    const key = this.#keys.get(keyId);
    if (key === undefined) throw keyIsMissing(endpointId, kind, keyId);
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
      throw damaged(endpointId, kind);
    }
  }

  isCurrent({ sealed }: Pick<SealedEndpointKey, 'sealed'>): boolean {
    return SEALED.exec(sealed)?.[2] === this.current;
  }
}

/** Endpoints that are read at once. */
const PAGE = 1_000;

/**
 * Looks for a secret that can be decrypted.
 *
 * @param most - endpoints whose secrets are tried
 * @returns the first one that cannot be decrypted, if none can; `undefined` if one can, or if there is none
 */
export async function unreadableSecret(
  store: EndpointStore,
  sealer: SecretSealer,
  most = Infinity,
): Promise<{ readonly endpointId: string; readonly error: WebhookStoreError } | undefined> {
  let unreadable: { readonly endpointId: string; readonly error: WebhookStoreError } | undefined;
  let page: readonly StoredEndpoint[] = [];
  const limit = Math.min(most, PAGE);
  let tried = 0;
  do {
    page = await store.list({ limit, after: page.at(-1)?.id });
    tried += page.length;
    for (const endpoint of page) {
      const { id, keys, credentials } = endpoint;
      const secrets = keys.map((key) => () => void sealer.open(id, key));
      if (credentials) secrets.push(() => void openCredentials(sealer, endpoint, credentials));
      for (const open of secrets) {
        try {
          open();
          return undefined;
        } catch (error) {
          unreadable ??= { endpointId: id, error: error as WebhookStoreError };
        }
      }
    }
  } while (page.length === limit && tried < most);
  return unreadable;
}

/** Endpoints whose secrets {@link requireReadableSecrets} tries. */
const TRIED = 20;

/**
 * Checks that the sealing keys fit a store: with wrong ones, every delivery would use up its attempts.
 *
 * @throws {@link WebhookStoreError} `sealed_secret_unreadable` if none of the secrets that it tries can be decrypted
 */
export async function requireReadableSecrets(
  store: EndpointStore,
  sealer: SecretSealer,
): Promise<void> {
  const unreadable = await unreadableSecret(store, sealer, TRIED);
  if (unreadable === undefined) return;
  throw new WebhookStoreError(
    'sealed_secret_unreadable',
    `${unreadable.error.message} No secret of the first ${TRIED} endpoints can be decrypted; to start nevertheless, set checkStores: false.`,
  );
}

/** The additional authenticated data. Each part is prefixed with its length, so that the encoding is unambiguous. */
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

/** How to replace a secret that cannot be decrypted. */
const REPLACED_BY = {
  secret: "rotate the endpoint's key with overlap 0",
  credentials: 'update the endpoint with its credentials again',
} as const;

function keyIsMissing(
  endpointId: string,
  kind: keyof typeof REPLACED_BY,
  keyId: string,
): WebhookStoreError {
  return new WebhookStoreError(
    'sealed_secret_unreadable',
    `The ${kind} of endpoint "${endpointId}" cannot be decrypted without the key "${keyId}", which is not among the sealingKeys: add it after the first, or ${REPLACED_BY[kind]}.`,
  );
}

function damaged(endpointId: string, kind: keyof typeof REPLACED_BY): WebhookStoreError {
  return new WebhookStoreError(
    'sealed_secret_unreadable',
    `The ${kind} of endpoint "${endpointId}" cannot be decrypted: the sealing key has changed, or the stored value was modified or moved. Correct the sealingKeys, or ${REPLACED_BY[kind]}.`,
  );
}
