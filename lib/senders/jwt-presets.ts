import { readOptions } from '../options/read-options.js';
import { func, notUndefined, object, optional, required, seconds } from '../options/rules.js';
import { isIdentifier } from '../token/identifier.js';
import { isObject } from '../token/json.js';
import type { WebhookKey } from '../token/keys/key-material.js';
import { invalidClaim } from '../token/validate-claims.js';
import { type JwtKeyOptions, resolveJwtKeys } from './jwt-keys.js';
import { claimRules, createJwtSender, JWT_SENDER, type JwtSenderOptions } from './jwt-sender.js';
import { NAMES } from './option-rules.js';
import type { SenderMessage, SenderOptions, WebhookSender } from './sender.js';
import { isConfigured, stringAt, testMembers } from './signature-header.js';

export interface A2aOptions
  extends JwtKeyOptions, SenderOptions, Pick<JwtSenderOptions, 'audience' | 'maxAge'> {
  /** The `iss` of the agent's tokens, or several. */
  readonly issuer: string | readonly string[];
  /** The `token` of the push notification configuration, or several: then `X-A2A-Notification-Token` must have it. */
  readonly notificationToken?: string | readonly string[] | undefined;
}

const A2A = object<A2aOptions>()({
  ...JWT_SENDER,
  issuer: required(NAMES),
  audience: optional(NAMES, []),
  notificationToken: notUndefined(NAMES, 'leave it out if the agents send none'),
  maxAge: optional(seconds),
});

const A2A_TOKEN = 'x-a2a-notification-token';

/**
 * Push notifications of agents, A2A (Agent2Agent). The event's name is `task.<state>` (`task.completed`, `task.input-required`),
 * `task.artifact` or `message`; its id is the token's `jti`, which is required,
 * or the `txn` of a publisher of this package; with several issuers, a digest of `iss` and it.
 *
 * The token does not cover the body, so `event.bodyVerified` is `false`: ask the agent for the task before you rely on it.
 *
 * @throws {@link WebhookConfigurationError}
 * @see https://a2a-protocol.org/latest/topics/streaming-and-async/
 */
export function a2a(options: A2aOptions): WebhookSender {
  const read = readOptions(A2A, options, 'a2a');
  const { event = a2aName, issuer, audience, tolerance, maxAge, notificationToken } = read;
  return createJwtSender(resolveJwtKeys(read, 'a2a'), {
    name: 'a2a',
    rules: {
      issuers: issuer,
      audience,
      tolerance,
      maxAge,
      // Without an id, a token would be good for any number of bodies: it covers none.
      claims: { jti: { accepts: isIdentifier, example: undefined } },
    },
    event,
    // This package's publisher signs a new `jti` for each attempt. In other tokens, `txn` may correlate several updates: RFC 8417, section 2.2.
    idOf: ({ webhook, txn }) => (isObject(webhook) ? txn : undefined),
    checkHeaders(headers) {
      if (notificationToken === undefined) return;
      if (isConfigured(headers.get(A2A_TOKEN) ?? '', notificationToken)) return;
      throw invalidClaim(A2A_TOKEN, `${A2A_TOKEN} has not the expected value`);
    },
    compose: ({ event: name, data, id }) => ({
      ...(notificationToken && { headers: { [A2A_TOKEN]: notificationToken[0]! } }),
      data: a2aBody(name, id, testMembers(data)),
    }),
  });
}

/** The names of 1.0, whose body has one member, and of 0.3, whose body has a `kind`. */
function a2aName({ data }: SenderMessage): string | undefined {
  const kind = stringAt(data, 'kind');
  const has = (member: string): boolean => isObject(data) && isObject(data[member]);
  if (kind === 'message' || has('message')) return 'message';
  if (kind === 'artifact-update' || has('artifactUpdate')) return 'task.artifact';
  const state =
    stringAt(data, 'statusUpdate', 'status', 'state') ??
    stringAt(data, 'task', 'status', 'state') ??
    stringAt(data, 'status', 'state');
  const word = state?.replace(/^TASK_STATE_/, '').toLowerCase();
  return word && `task.${word.replaceAll('_', '-')}`;
}

/** A body of 1.0 around the data, unless the data is a body. */
function a2aBody(name: string, taskId: string, data: Readonly<Record<string, unknown>>): unknown {
  if (a2aName({ data, headers: { get: () => undefined }, claims: {} }) === name) return data;
  if (name === 'message') return { message: data };
  if (name === 'task.artifact') return { artifactUpdate: { taskId, ...data } };
  const state = `TASK_STATE_${name.slice('task.'.length).toUpperCase().replaceAll('-', '_')}`;
  return { statusUpdate: { taskId, status: { state }, ...data } };
}

export interface QstashOptions extends SenderOptions {
  /** The current and the next signing key. */
  readonly secret: string | readonly (string | undefined)[] | undefined;
  /** The URL that messages are sent to, or several, as QStash knows it: the `sub` of its tokens. */
  readonly url: string | readonly string[];
}

const QSTASH = object<QstashOptions>()({
  event: JWT_SENDER.event,
  tolerance: JWT_SENDER.tolerance,
  secret: required(NAMES),
  url: required(NAMES),
});

/**
 * Upstash QStash. QStash names no events: without `event`, all are named `message`. The event's id is `Upstash-Message-Id`; it is not
 * signed, so a captured token with another id is rejected.
 *
 * @throws {@link WebhookConfigurationError}
 * @see https://upstash.com/docs/qstash/howto/signature
 */
export function qstash(options: QstashOptions): WebhookSender {
  const read = readOptions(QSTASH, options, 'qstash');
  const { event = () => 'message', tolerance, url } = read;
  return createJwtSender(resolveJwtKeys(read, 'qstash'), {
    name: 'qstash',
    header: 'upstash-signature',
    digest: { claim: 'body', encoding: 'base64url' },
    rules: {
      issuers: ['Upstash'],
      audience: [],
      tolerance,
      claims: claimRules({ sub: url }),
    },
    event,
    id: ({ headers }) => headers.get('upstash-message-id'),
    compose: ({ data, id }) => ({ headers: { 'upstash-message-id': id }, data }),
  });
}

/** A key as Plaid's `/webhook_verification_key/get` returns it. */
export interface PlaidKey {
  readonly kty: string;
  readonly crv: string;
  readonly x: string;
  readonly y: string;
  /** Seconds since the epoch; `null` for a key in use. */
  readonly expired_at?: number | null | undefined;
}

export interface PlaidOptions extends SenderOptions, Pick<JwtKeyOptions, 'signingKey'> {
  /** Asks Plaid for the key with this id; it is kept for 10 minutes. */
  readonly key: (kid: string) => PlaidKey | undefined | Promise<PlaidKey | undefined>;
}

const PLAID = object<PlaidOptions>()({
  event: JWT_SENDER.event,
  tolerance: JWT_SENDER.tolerance,
  signingKey: JWT_SENDER.signingKey,
  key: required(func<PlaidOptions['key']>('async (kid) => key')),
});

/**
 * Plaid. The event's name is `<webhook_type>.<webhook_code>`: `ITEM.ERROR`. Plaid sends no id, and repeats bodies, so the token
 * identifies the event: a retry with a new token is handled again.
 *
 * ```ts
 * plaid({
 *   key: async (key_id) => (await plaidClient.webhookVerificationKeyGet({ key_id })).data.key,
 * });
 * ```
 *
 * @throws {@link WebhookConfigurationError}
 * @see https://plaid.com/docs/api/webhooks/webhook-verification/
 */
export function plaid(options: PlaidOptions): WebhookSender {
  const read = readOptions(PLAID, options, 'plaid');
  const { tolerance, signingKey, key: lookUp } = read;
  const key = async (kid: string): Promise<WebhookKey | undefined> => {
    const found = await lookUp(kid);
    if (found === undefined) return undefined;
    const { kty, crv, x, y, expired_at: end } = found;
    const notAfter = typeof end === 'number' ? new Date(end * 1_000) : undefined;
    return { alg: 'ES256', key: { kty, crv, x, y }, notAfter };
  };
  return createJwtSender(resolveJwtKeys({ signingKey, key }, 'plaid'), {
    name: 'plaid',
    header: 'plaid-verification',
    digest: { claim: 'request_body_sha256' },
    rules: { audience: [], tolerance, maxAge: 300, claims: {} },
    event:
      read.event ??
      (({ data }) => {
        const [type, code] = [stringAt(data, 'webhook_type'), stringAt(data, 'webhook_code')];
        return type === undefined || code === undefined ? undefined : `${type}.${code}`;
      }),
    compose({ event, data }) {
      const [webhook_type, webhook_code] = event.split('.');
      return { data: { webhook_type, webhook_code, ...testMembers(data) } };
    },
  });
}
