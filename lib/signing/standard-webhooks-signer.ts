import { WebhookSigningError } from '../errors/webhook.error.js';
import {
  parseStandardWebhooksSigningKey,
  signedContent,
  type StandardWebhooksKey,
} from '../keys/standard-webhooks-key.js';
import { object, type Rule } from '../options/rules.js';
import { unprinted } from '../options/unprinted.js';

export interface StandardWebhooksSigningOptions {
  /**
   * `whsec_` and base64 of 24 to 64 bytes, or an Ed25519 key pair, `whsk_` and base64. With a list, each of them signs: while a secret
   * is rotated, the receiver has either one.
   */
  readonly secret: string | readonly (string | undefined)[] | undefined;
}

export interface StandardWebhooksSigner {
  /**
   * The value of `webhook-signature`: a signature of every key.
   *
   * @param time - whole seconds since the epoch, as in `webhook-timestamp`
   * @throws {@link WebhookSigningError} `no_signing_key`
   */
  sign(id: string, time: string, body: Uint8Array): string;
}

type Key = Required<StandardWebhooksKey>;

const KEY: Rule<Key> = (value, at, name) => {
  const { key, problem } = parseStandardWebhooksSigningKey(value);
  return key ?? (at.add(name, problem) as never);
};

const MAX_SECRETS = 8;

/** Reads one secret or several as a signer, which does not print them. */
export const STANDARD_WEBHOOKS_SECRET: Rule<StandardWebhooksSigner> = (value, at, name) => {
  const given = Array.isArray(value) ? value : [value];
  if (given.length === 0 || given.length > MAX_SECRETS) {
    return at.add(name, `must be a secret, or a list of 1 to ${MAX_SECRETS} secrets`) as never;
  }
  const pathOf = (index: number): string => (Array.isArray(value) ? `${name}[${index}]` : name);
  return signerOf(Array.from(given, (one: unknown, index) => KEY(one, at, pathOf(index))));
};

const OPTIONS = object<StandardWebhooksSigningOptions>()({
  secret: STANDARD_WEBHOOKS_SECRET,
});

/** Reads the option `standardWebhooks` as its signer. */
export const STANDARD_WEBHOOKS_SIGNING: Rule<StandardWebhooksSigner> = (value, at, name) =>
  OPTIONS(value, at, name)?.secret;

/** @throws {@link WebhookSigningError} `no_signing_key` if one of them is none of Standard Webhooks */
export function standardWebhooksSigner(secrets: readonly string[]): StandardWebhooksSigner {
  return signerOf(
    secrets.map((secret) => {
      const { key, problem } = parseStandardWebhooksSigningKey(secret);
      if (key !== undefined) return key;
      throw new WebhookSigningError('no_signing_key', `the secret of the endpoint ${problem}.`);
    }),
  );
}

function signerOf(keys: readonly Key[]): StandardWebhooksSigner {
  return unprinted<StandardWebhooksSigner>(
    {
      sign(id, time, body) {
        const signed = signedContent(id, time, body);
        return keys.map(({ version, sign }) => `${version},${sign(signed)}`).join(' ');
      },
    },
    '[standardWebhooks]',
  );
}
