import { hash } from 'node:crypto';
import { WebhookPayloadError } from '../errors/webhook.error.js';
import { readOptions } from '../options/read-options.js';
import { object, required, text } from '../options/rules.js';
import type { RequestHeaders, SenderChallenge } from '../request/webhook-scheme.js';
import { decodeUtf8 } from '../token/decoding.js';
import { isObject, parseJson, scanJson } from '../token/json.js';
import { isEventName } from '../token/event-name.js';
import { parseJsonPayload } from '../token/payload.js';
import type { ClaimRule } from './jwt.js';
import { type JwtKeyOptions, resolveJwtKeys } from './jwt-keys.js';
import {
  claimRules,
  createJwtSender,
  EXPECTED_CLAIMS,
  type ExpectedClaims,
  JWT_SENDER,
} from './jwt-sender.js';
import { NAMES } from './option-rules.js';
import type { ComposeTest, SenderMessage, SenderOptions, WebhookSender } from './sender.js';
import { MAX_CHALLENGE, members, stringAt, testMembers } from './signature-header.js';

export interface GooglePushOptions extends JwtKeyOptions, SenderOptions {
  /** The configured audience; without one, Google uses the whole push URL. */
  readonly audience: string | readonly string[];
  /** The e-mail address of the service account that the subscription or queue uses, or several. */
  readonly serviceAccount: string | readonly string[];
}

const GOOGLE = object<GooglePushOptions>()({
  ...JWT_SENDER,
  audience: required(NAMES),
  serviceAccount: required(NAMES),
});

const GOOGLE_KEYS = 'https://www.googleapis.com/oauth2/v3/certs';

/**
 * Google Pub/Sub push subscriptions, Cloud Tasks and Cloud Scheduler, with an OIDC token. `event.data` is the body; `message.data` of Pub/Sub is
 * decoded and parsed if it is JSON, within the limits of the receiver. The event's name is the attribute `eventType`, else `message`;
 * of a task it is `task`, of Cloud Scheduler `job`. Its id is `messageId`, together with the subscription, or the name of the task or
 * job, together with its queue or the time that the job was due.
 *
 * The token does not cover the body, and many requests have the same one: `event.bodyVerified` is `false`.
 *
 * @throws {@link WebhookConfigurationError}
 * @see https://cloud.google.com/pubsub/docs/authenticate-push-subscriptions
 */
export function googlePush(options: GooglePushOptions): WebhookSender {
  const read = readOptions(GOOGLE, options, 'googlePush');
  const { event = googleName, audience, serviceAccount, tolerance } = read;
  const accounts = serviceAccount.map((one) => one.toLowerCase());
  const email: ClaimRule = {
    accepts: (value) => typeof value === 'string' && accounts.includes(value.toLowerCase()),
    example: accounts[0],
  };
  return createJwtSender(resolveJwtKeys(read, 'googlePush', GOOGLE_KEYS), {
    name: 'google-push',
    rules: {
      issuers: ['https://accounts.google.com', 'accounts.google.com'],
      audience,
      tolerance,
      claims: { email, ...claimRules({ email_verified: true }) },
    },
    event,
    id({ headers, data }) {
      const [source, id] = identityOf(headers, data);
      if (id !== undefined) return idOfSource(source, id);
      // The body of each run of a job may be the same.
      throw new WebhookPayloadError(
        'invalid_payload',
        'the request has no id: set "write metadata" if the subscription unwraps its messages',
      );
    },
    data: ({ headers, data }, maxMembers) =>
      kindOf(headers) === undefined ? decodedMessage(data, maxMembers) : undefined,
    compose({ event: name, data, id }): ReturnType<ComposeTest> {
      if (name === 'task') return { headers: { [TASK_NAME]: id }, data };
      if (name === 'job') return { headers: { [JOB_NAME]: 'test', [JOB_TIME]: id }, data };
      const message = isObject(data) ? members(data['message']) : {};
      const encoded = Buffer.from(JSON.stringify(message['data'] ?? null)).toString('base64');
      const attributes = { ...(name !== 'message' && { eventType: name }) };
      return {
        data: {
          ...testMembers(data),
          message: { messageId: id, attributes, ...message, data: encoded },
        },
      };
    },
  });
}

const TASK_NAME = 'x-cloudtasks-taskname';
const JOB_NAME = 'x-cloudscheduler-jobname';
const JOB_TIME = 'x-cloudscheduler-scheduletime';
const MESSAGE_ID = 'x-goog-pubsub-message-id';

/** What the headers say that the request is. The body of each may be anything, even that of a message. */
function kindOf(headers: SenderMessage['headers']): 'task' | 'job' | 'message' | undefined {
  if (headers.get(TASK_NAME) !== undefined) return 'task';
  if (headers.get(JOB_NAME) !== undefined) return 'job';
  // Of a subscription that unwraps its messages.
  return headers.get(MESSAGE_ID) === undefined ? undefined : 'message';
}

/** The source of a request, and its id there. */
function identityOf(
  headers: SenderMessage['headers'],
  data: unknown,
): readonly [source: string | undefined, id: string | undefined] {
  switch (kindOf(headers)) {
    case 'task':
      return [headers.get('x-cloudtasks-queuename'), headers.get(TASK_NAME)];
    case 'job':
      return [headers.get(JOB_NAME), headers.get(JOB_TIME)];
    case 'message':
      return [headers.get('x-goog-pubsub-subscription-name'), headers.get(MESSAGE_ID)];
    case undefined:
      return [stringAt(data, 'subscription'), stringAt(data, 'message', 'messageId')];
  }
}

function googleName({ headers, data }: SenderMessage): string | undefined {
  const kind = kindOf(headers);
  if (kind !== undefined) return kind;
  if (!isObject(data) || !isObject(data['message'])) return undefined;
  const type = stringAt(data, 'message', 'attributes', 'eventType');
  return isEventName(type, 'swt-draft-00') ? type : 'message';
}

/** A body of Pub/Sub with decoded data. */
function decodedMessage(body: unknown, maxMembers: number): unknown {
  const encoded = stringAt(body, 'message', 'data');
  if (encoded === undefined) return undefined;
  const { message } = body as { message: Readonly<Record<string, unknown>> };
  return { ...members(body), message: { ...message, data: decoded(encoded, maxMembers) } };
}

/** Data of a message: anyone who may publish to the topic chose it. What is not JSON stays base64. */
function decoded(encoded: string, maxMembers: number): unknown {
  const bytes = Buffer.from(encoded, 'base64');
  const text = decodeUtf8(bytes);
  if (text === undefined) return encoded;
  if (!scanJson(text, { members: maxMembers }) && parseJson(text) === undefined) return encoded;
  return parseJsonPayload(bytes, 'application/json', maxMembers);
}

export interface EventGridOptions extends JwtKeyOptions, SenderOptions {
  /** The id of the Entra tenant. */
  readonly tenant: string;
  /** The id or the URI of the Entra application that the subscription names. */
  readonly audience: string | readonly string[];
  /** Further claims that the token must have, such as the `appid` of Event Grid: any application of the tenant may get a token. */
  readonly claims?: ExpectedClaims | undefined;
}

const EVENT_GRID = object<EventGridOptions>()({
  ...JWT_SENDER,
  tenant: required(text()),
  audience: required(NAMES),
  claims: EXPECTED_CLAIMS,
});

/**
 * Microsoft Event Grid, with a token of Entra, in its own schema or that of CloudEvents. The event's name is `eventType` or `type`;
 * its id is `id`, together with the topic or source. Each event of a request is an event. Both validations of the URL are answered.
 *
 * The token does not cover the body: `event.bodyVerified` is `false`.
 *
 * @throws {@link WebhookConfigurationError}
 * @see https://learn.microsoft.com/azure/event-grid/secure-webhook-delivery
 */
export function eventGrid(options: EventGridOptions): WebhookSender {
  const read = readOptions(EVENT_GRID, options, 'eventGrid');
  const { tenant, audience, tolerance, claims } = read;
  const own = ({ data }: SenderMessage): string | undefined =>
    stringAt(data, 'eventType') ?? stringAt(data, 'type');
  const { issuers, jwksUri } = entra(tenant);
  return createJwtSender(resolveJwtKeys(read, 'eventGrid', jwksUri), {
    name: 'event-grid',
    rules: { issuers, audience, tolerance, claims: claimRules(claims) },
    event: read.event ?? own,
    split: ({ data }) => (Array.isArray(data) ? data : undefined),
    id: ({ data }) =>
      idOfSource(stringAt(data, 'topic') ?? stringAt(data, 'source'), stringAt(data, 'id')),
    challenge({ headers, data }) {
      if (headers.get('aeg-event-type') !== 'SubscriptionValidation') return undefined;
      const code = stringAt(Array.isArray(data) ? data[0] : data, 'data', 'validationCode');
      return code === undefined
        ? undefined
        : { challengeAnswer: { validationResponse: code.slice(0, MAX_CHALLENGE) } };
    },
    preflight: {
      methods: ['OPTIONS'],
      answer: ({ headers }) => allowOrigin(headers),
    },
    compose: ({ event: eventType, data, id, now }) => ({
      headers: { 'aeg-event-type': 'Notification' },
      data: [{ id, eventType, eventTime: new Date(now).toISOString(), ...testMembers(data) }],
    }),
  });
}

/** Where the keys of an Entra tenant are, and the `iss` of its tokens, in version 2 and 1. */
export function entra(tenant: string): { readonly jwksUri: string; readonly issuers: string[] } {
  const authority = `https://login.microsoftonline.com/${tenant}`;
  return {
    jwksUri: `${authority}/discovery/v2.0/keys`,
    issuers: [`${authority}/v2.0`, `https://sts.windows.net/${tenant}/`],
  };
}

/**
 * Two sources may use one id: CloudEvents 1.0, "id"; subscriptions of one topic have one `messageId`. The name of a task has up to
 * 500 characters, which are more than an id can have.
 */
function idOfSource(source: string | undefined, id: string | undefined): string | undefined {
  const short = id === undefined || id.length <= 200 ? id : hash('sha256', id);
  if (short === undefined || source === undefined) return short;
  return `${short} ${hash('sha256', source).slice(0, 16)}`;
}

/** Abuse protection of CloudEvents webhooks, section 4: the origin is that of the request. */
function allowOrigin(headers: RequestHeaders): SenderChallenge | undefined {
  const origin = headers.get('webhook-request-origin');
  // The name of a host, so that nothing else is reflected.
  if (origin === undefined || !/^[\w.-]{1,253}$/.test(origin)) return undefined;
  return {
    challengeHeaders: {
      Allow: 'POST',
      'WebHook-Allowed-Origin': origin,
      'WebHook-Allowed-Rate': '*',
    },
  };
}
