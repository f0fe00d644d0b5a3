import {
  createCipheriv,
  createDecipheriv,
  randomBytes,
  randomUUID,
  type KeyObject,
} from 'node:crypto';
import { WebhookStoreError } from '../errors/webhook-store.error.js';
import type { SealedEndpointKey } from './endpoint-store.js';
import { sealingKeyObject, type SealingKey } from './sealing-key.js';

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
