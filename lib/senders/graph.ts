import { randomUUID } from 'node:crypto';
import { WebhookSignatureError, WebhookTokenError } from '../errors/webhook.error.js';
import { readOptions } from '../options/read-options.js';
import { object, optional, required, text } from '../options/rules.js';
import { parseJsonPayload } from '../token/payload.js';
import { invalidClaim } from '../token/validate-claims.js';
import { entra } from './cloud-presets.js';
import { type JwtRules, verifyJwt } from './jwt.js';
import { type JwtKeyOptions, resolveJwtKeys } from './jwt-keys.js';
import { JWT_SENDER } from './jwt-sender.js';
import { NAMES, SECRETS } from './option-rules.js';
import {
  composeTest,
  createSender,
  type SenderMessage,
  type SenderOptions,
  type WebhookSender,
} from './sender.js';
import { isConfigured, members, stringAt, testMembers } from './signature-header.js';

export interface GraphOptions extends Omit<JwtKeyOptions, 'secret' | 'signingKey'>, SenderOptions {
  /** The `clientState` of the subscriptions, or several. */
  readonly clientState: string | readonly (string | undefined)[] | undefined;
  /** The id of the Entra tenant; required with `audience`. */
  readonly tenant?: string | undefined;
  /** The id of your application. With it, the tokens of notifications with resource data are verified. */
  readonly audience?: string | readonly string[] | undefined;
}

const { secret: _secret, signingKey: _signingKey, ...KEYS } = JWT_SENDER;

const OPTIONS = object<GraphOptions>()(
  {
    ...KEYS,
    clientState: required(SECRETS),
    tenant: optional(text()),
    audience: optional(NAMES),
  },
  {
    across({ tenant, audience }, at) {
      at.require(
        audience === undefined || tenant !== undefined,
        'tenant',
        'is required with "audience": pass the id of the Entra tenant',
      );
    },
  },
);

/** The application that signs the tokens of notifications. */
const PUBLISHER = '0bf30f3b-4a52-48df-9a82-234910c4a086';
const MAX_TOKENS = 16;

/**
 * Change notifications of Microsoft Graph. Each item of `value` is an event, without its `clientState`. Its name is the type of the
 * resource and the change (`message.created`), only the change if there is no type (`updated`), or `lifecycle.<event>`. Its id is `id`;
 * an item without one is never taken for a duplicate. The validation of the URL is answered.
 *
 * Nothing signs the body: `event.bodyVerified` is `false`, so read the resource before you rely on it. Encrypted resource data stays
 * encrypted.
 *
 * @throws {@link WebhookConfigurationError}
 * @see https://learn.microsoft.com/graph/change-notifications-delivery-webhooks
 */
export function graph(options: GraphOptions): WebhookSender {
  const read = readOptions(OPTIONS, options, 'graph');
  const { clientState, tenant, audience, tolerance } = read;
  const { issuers, jwksUri } = entra(tenant ?? 'common');
  const keys = audience && resolveJwtKeys(read, 'graph', jwksUri);
  const rules: JwtRules | undefined = keys && {
    keys,
    issuers,
    audience,
    tolerance,
    claims: {},
  };
  return createSender({
    name: 'graph',
    present: [],
    tolerance,
    bodyVerified: false,
    checkKeySets: keys && (() => keys.checkKeySets()),
    event: read.event ?? nameOfItem,
    split: ({ data }) => itemsOf(data),
    id: ({ data }) => stringAt(data, 'id') ?? randomUUID(),
    data({ data }) {
      const { clientState: _, ...item } = members(data);
      return item;
    },
    preflight: {
      methods: ['POST'],
      answer({ query }) {
        const token = query.get('validationToken');
        // Nothing that a browser could take for a page.
        if (token === null || !/^[\w .,:;=+/~-]{1,1024}$/.test(token)) return undefined;
        return {
          challengeText: token,
          challengeHeaders: { 'X-Content-Type-Options': 'nosniff' },
        };
      },
    },
    read: () => ({
      async holdFor(body, { now, maxJsonMembers }) {
        const content = readContent(body, maxJsonMembers);
        const items = itemsOf(content);
        const isKnown = (item: unknown): boolean =>
          isConfigured(stringAt(item, 'clientState') ?? '', clientState);
        // The first wrong one decides: without the secret, a request with many items is no more work.
        if (items.length === 0 || !items.every(isKnown)) {
          throw new WebhookSignatureError(
            'invalid_signature',
            'an item of the request has not the clientState of the subscription',
          );
        }
        if (rules !== undefined) await verifyTokens(content, items, rules, now);
        return { content };
      },
    }),
    sign: (message) =>
      composeTest(message, ({ event, data, id }) => ({
        data: {
          value: [{ id, ...named(event), ...testMembers(data), clientState: clientState[0] }],
        },
      })),
  });
}

function itemsOf(data: unknown): readonly unknown[] {
  const { value } = members(data);
  return Array.isArray(value) ? value : [];
}

/** The content of a body that is not verified yet; `undefined` if it is not JSON. */
function readContent(body: Buffer, maxMembers: number): unknown {
  try {
    return parseJsonPayload(body, 'application/json', maxMembers);
  } catch {
    return undefined;
  }
}

/** @throws {@link WebhookTokenError}, {@link WebhookStoreError} `keys_unavailable` */
async function verifyTokens(
  content: unknown,
  items: readonly unknown[],
  rules: JwtRules,
  now: number,
): Promise<void> {
  const { validationTokens: tokens = [] } = members(content);
  const isRequired = items.some((item) => members(item)['encryptedContent'] !== undefined);
  if (!Array.isArray(tokens) || tokens.length > MAX_TOKENS) {
    throw new WebhookTokenError(
      'invalid_token',
      `validationTokens must be a list of at most ${MAX_TOKENS} tokens`,
    );
  }
  if (isRequired && tokens.length === 0) {
    throw new WebhookTokenError('missing_token', 'the request has resource data, and no token');
  }
  for (const token of tokens as unknown[]) {
    const { claims } = await verifyJwt(String(token), rules, now);
    // Version 2 of the token names it in `azp`, version 1 in `appid`.
    const claim = claims['azp'] === undefined ? 'appid' : 'azp';
    if (claims[claim] !== PUBLISHER) {
      throw invalidClaim(claim, `${claim} is not that of Microsoft Graph`);
    }
  }
}

const LIFECYCLE = 'lifecycle.';

function nameOfItem({ data }: SenderMessage): string | undefined {
  const lifecycle = stringAt(data, 'lifecycleEvent');
  if (lifecycle !== undefined) return LIFECYCLE + lifecycle;
  const change = stringAt(data, 'changeType');
  const type = /(?<![A-Za-z])([A-Za-z]+)$/.exec(
    stringAt(data, 'resourceData', '@odata.type') ?? '',
  )?.[1];
  if (change === undefined || type === undefined) return change;
  return `${type[0]!.toLowerCase()}${type.slice(1)}.${change}`;
}

/** The members of an item that name an event. */
function named(event: string): Readonly<Record<string, unknown>> {
  if (event.startsWith(LIFECYCLE)) return { lifecycleEvent: event.slice(LIFECYCLE.length) };
  const [type, changeType] = event.split('.');
  if (changeType === undefined) return { changeType: type };
  return { changeType, resourceData: { '@odata.type': `#microsoft.graph.${type}` } };
}
