import type { RequestRules } from '../request/webhook-scheme.js';
import { createTokenVerifier } from '../token/verifier-options.js';
import { DEFAULT_MAX_JSON_MEMBERS, type WebhookProfile } from '../token/webhook-token.constants.js';
import { KEY_OPTIONS, readIssuerKey, UsageError } from './arguments.js';
import type { Arguments, CommandIo, Options } from './command.interface.js';

export const RECEIVER_OPTIONS = {
  ...KEY_OPTIONS,
  audience: { type: 'string', multiple: true },
  profile: { type: 'string', multiple: true },
} as const satisfies Options;

/** The default of a receiver. */
export const MAX_BODY_BYTES = 32 * 1024 * 1024;

export const BODY_RULES = {
  requireHash: true,
  maxBodyBytes: MAX_BODY_BYTES,
  maxJsonMembers: DEFAULT_MAX_JSON_MEMBERS,
};

/** @throws {@link UsageError} */
export async function readRules(
  values: Arguments<typeof RECEIVER_OPTIONS>['values'] & { readonly now?: string | undefined },
  env: CommandIo['env'],
): Promise<RequestRules & { readonly issuer: string }> {
  const { issuer, key } = await readIssuerKey(values, env, 'verify');
  const tokens = createTokenVerifier({
    issuers: [{ issuer, keys: [key] }],
    audience: values.audience,
    profiles: values.profile as readonly WebhookProfile[] | undefined,
    now: readClock(values.now),
  });
  return { issuer, tokens, ...BODY_RULES };
}

/**
 * A clock that stands still at a time.
 *
 * @param time - in ISO 8601
 * @returns `undefined` without a time
 * @throws {@link UsageError}
 */
export function readClock(time: string | undefined): (() => number) | undefined {
  if (time === undefined) return undefined;
  const now = Date.parse(time);
  if (!Number.isNaN(now)) return () => now;
  throw new UsageError('--now must be an ISO 8601 time, such as 2026-01-31T12:00:00Z.');
}
