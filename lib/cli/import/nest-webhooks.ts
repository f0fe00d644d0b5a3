import { createDecipheriv, createHash, hkdfSync } from 'node:crypto';
import { defined } from '../../options/defined.js';
import { parseJson } from '../../token/json.js';
import {
  booleanOf,
  elementsOf,
  membersOf,
  type SourceEndpoint,
  textOf,
  withoutDeepLevels,
} from './source-endpoint.js';

/** Reads a row of the table `endpoints` of `@nestjs/webhooks`. */
export function readNestWebhooks(row: unknown, keys: OfficialKeys, now: number): SourceEndpoint {
  const { id, tenant, url, event_types, description, enabled, secrets, ...rest } = membersOf(row);
  const problems: string[] = [];
  const live = jsonList(secrets)
    .map(membersOf)
    .filter(({ expiresAt }) => typeof expiresAt !== 'number' || expiresAt > now);
  const opened = live.map(({ secret, expiresAt }) => {
    const read = keys.open(textOf(id) ?? '', textOf(secret));
    if (read.problem !== undefined) problems.push(`secrets: ${read.problem}`);
    return { secret: read.secret, expiresAt };
  });
  // Newest first; only those that a rotation has replaced expire.
  const [current, ...older] = opened;
  const previous = older.flatMap(({ secret, expiresAt }) =>
    typeof expiresAt === 'number' ? { secret, expiresAt } : [],
  );
  const hasSecrets = live.slice(1).every(({ secret }) => textOf(secret) !== undefined);
  if (previous.length < older.length || !hasSecrets) {
    problems.push(
      'secrets: an older one lacks its secret or its expiresAt in epoch milliseconds; correct the export',
    );
  }
  const events = jsonList(event_types);
  const isEnabled = booleanOf(enabled);
  if (enabled === undefined) problems.push('enabled: is missing; add it to the export');
  else if (isEnabled === undefined) {
    problems.push(`enabled: ${JSON.stringify(enabled)} is unknown; write true or false`);
  }
  const reason = textOf(rest['disabled_reason']);
  return {
    endpoint: defined({
      id,
      tenant: textOf(tenant),
      url,
      events: events.includes('*') ? undefined : events,
      description: textOf(description),
      secret: current?.secret,
    }),
    previous,
    state: isEnabled === true ? 'enabled' : 'disabled',
    notes: isEnabled === true || reason === undefined ? [] : [`was disabled: ${reason}`],
    problems,
  };
}

/** MySQL exports JSON columns as strings. */
function jsonList(value: unknown): readonly unknown[] {
  return elementsOf(typeof value === 'string' ? withoutDeepLevels(parseJson(value)) : value);
}

const SEALED = 'sealed.v1.';
const INFO = 'nestjs-webhooks:v1';

/** Opens the secrets that `@nestjs/webhooks` has encrypted with its option `encryption.keys`. */
export class OfficialKeys {
  readonly #keys: ReadonlyMap<string, Buffer>;

  /** @param keys - strings, as in that option */
  constructor(keys: readonly string[]) {
    this.#keys = new Map(
      keys.map((key) => {
        const derived = Buffer.from(hkdfSync('sha256', key, '', INFO, 32));
        return [createHash('sha256').update(derived).digest('base64url').slice(0, 8), derived];
      }),
    );
  }

  /** @returns the secret, or why it cannot be read */
  open(
    endpointId: string,
    stored: string | undefined,
  ): { readonly secret?: string | undefined; readonly problem?: string } {
    if (stored === undefined || !stored.startsWith(SEALED)) return { secret: stored };
    const [id, ...parts] = stored.slice(SEALED.length).split('.');
    const key = this.#keys.get(id!);
    if (key === undefined) {
      return {
        problem: `is encrypted with the key ${JSON.stringify(id)}; set WEBHOOKS_ENCRYPTION_KEYS to the keys of @nestjs/webhooks, separated by commas`,
      };
    }
    const [iv, text, tag] = parts.map((part) => Buffer.from(part, 'base64url'));
    try {
      const decipher = createDecipheriv('aes-256-gcm', key, iv!, { authTagLength: 16 });
      decipher.setAAD(Buffer.from(endpointId));
      decipher.setAuthTag(tag!);
      return { secret: Buffer.concat([decipher.update(text!), decipher.final()]).toString() };
    } catch {
      return {
        problem:
          'cannot be decrypted, because the value was changed or moved; rotate it in @nestjs/webhooks',
      };
    }
  }
}
