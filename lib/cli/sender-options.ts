import type { RequestRules } from '../request/webhook-scheme.js';
import {
  github,
  lemonSqueezy,
  paddle,
  shopify,
  slack,
  standardWebhooks,
  stripe,
  type WebhookSender,
  zoom,
} from '../senders/index.js';
import { KeyRing } from '../token/keys/token-keys.js';
import { ProfileChoice } from '../token/profiles/profile.js';
import { TokenVerifier } from '../token/token-verifier.js';
import {
  DEFAULT_CLOCK_TOLERANCE,
  DEFAULT_MAX_JSON_MEMBERS,
  DEFAULT_MAX_TOKEN_LIFETIME,
} from '../token/webhook-token.constants.js';
import { type KeyValues, readSecret, readVariables, UsageError } from './arguments.js';
import type { CommandIo } from './command.interface.js';
import { BODY_RULES } from './receiver-rules.js';

/** The senders that need a secret only. */
const SENDERS: Readonly<Record<string, (options: { secret: string }) => WebhookSender>> = {
  'standard-webhooks': standardWebhooks,
  stripe,
  github,
  slack,
  shopify,
  zoom,
  paddle,
  'lemon-squeezy': lemonSqueezy,
};

/** Options of commands that also handle tokens. */
const TOKEN_OPTIONS = [
  'issuer',
  'key',
  'alg',
  'kid',
  'method',
  'content-type',
  'profile',
  'audience',
  'subject',
  'lifetime',
];

export const SENDER_NAMES = `standard-webhooks, stripe, github, slack,
                         shopify, zoom, paddle or lemon-squeezy`;

/**
 * The sender of the option `--sender`, with the secret of the command.
 *
 * @throws {@link UsageError}, {@link WebhookConfigurationError}
 */
export async function readSender(
  name: string,
  values: KeyValues & Readonly<Record<string, unknown>>,
  env: CommandIo['env'],
): Promise<WebhookSender> {
  const create = Object.hasOwn(SENDERS, name) ? SENDERS[name] : undefined;
  if (create === undefined) {
    throw new UsageError(`--sender must be one of ${Object.keys(SENDERS).join(', ')}.`);
  }
  const unused = TOKEN_OPTIONS.find((option) => values[option] !== undefined);
  if (unused !== undefined) {
    throw new UsageError(`--${unused} only applies to tokens: leave it out with --sender.`);
  }
  const secret = await readSecret(values, await readVariables(values['env-file'], env));
  if (secret !== undefined) return create({ secret });
  throw new UsageError('A secret is required: set WEBHOOK_SECRET, or pass --secret-file.');
}

/** The rules of a receiver that accepts no tokens. */
export function rulesOfSender(now: () => number): RequestRules {
  // No issuer of tokens is trusted.
  const tokens = new TokenVerifier({
    keys: new KeyRing(new Map()),
    clockTolerance: DEFAULT_CLOCK_TOLERANCE,
    maxTokenLifetime: DEFAULT_MAX_TOKEN_LIFETIME,
    maxJsonMembers: DEFAULT_MAX_JSON_MEMBERS,
    audience: [],
    now,
    profiles: new ProfileChoice(),
  });
  return { tokens, ...BODY_RULES };
}
