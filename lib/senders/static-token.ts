import { WebhookSignatureError } from '../errors/webhook.error.js';
import { readOptions } from '../options/read-options.js';
import { object, optional, required } from '../options/rules.js';
import { parseJsonPayload } from '../token/payload.js';
import { HEADER_NAME, HEADER_VALUES, NAME } from './option-rules.js';
import {
  type ComposeTest,
  composeTest,
  createSender,
  DECLARED,
  declaredParts,
  type DeclaredSenderOptions,
  SENDER,
  type SenderOptions,
  type SenderParts,
  type WebhookSender,
} from './sender.js';
import {
  isConfigured,
  MAX_CHALLENGE,
  members,
  signatureHeader,
  stringAt,
  testMembers,
} from './signature-header.js';

/** The configured value of a sender that signs nothing. */
export interface StaticValueOptions extends Pick<SenderOptions, 'event'> {
  /** The value of the header, whole and byte for byte, or several while it is changed. */
  readonly value: string | readonly (string | undefined)[] | undefined;
}

/** A sender that signs nothing, and sends a configured value in a header. */
export interface StaticTokenOptions
  extends Pick<StaticValueOptions, 'value'>, Omit<DeclaredSenderOptions, 'name' | 'tolerance'> {
  /** The header, in lower case. */
  readonly header: string;
  /** The sender's name: `event.issuer` and `event.profile`; default `static-token`. */
  readonly name?: string | undefined;
  /** The event's id; default: the digest of the body. */
  readonly id?: DeclaredSenderOptions['id'];
}

/** What differs from sender to sender. */
interface StaticForm extends Pick<
  SenderParts,
  'name' | 'event' | 'id' | 'parse' | 'split' | 'challenge' | 'preflight' | 'keptHeaders'
> {
  readonly header: string;
  readonly compose?: ComposeTest;
}

const VALUE = { event: SENDER.event, value: required(HEADER_VALUES) };
const VALUE_OPTIONS = object<StaticValueOptions>()(VALUE);

const OPTIONS = object<StaticTokenOptions>()({
  ...VALUE,
  ...DECLARED,
  header: required(HEADER_NAME),
  name: optional(NAME, 'static-token'),
});

/**
 * A sender that sends a configured value in a header, and no signature.
 *
 * Anyone who sees one request can forge others: `event.bodyVerified` is `false`. Prefer a sender that signs.
 *
 * ```ts
 * staticToken({
 *   header: 'authorization',
 *   value: env.ACME_TOKEN,
 *   event: ({ data }) => (data as { type: string }).type,
 * });
 * ```
 *
 * @throws {@link WebhookConfigurationError}
 */
export function staticToken(options: StaticTokenOptions): WebhookSender {
  const { value, ...form } = readOptions(OPTIONS, options, 'staticToken');
  return createStaticSender(declaredParts(form), value);
}

/**
 * Okta event hooks. The value is that of their authentication field. Each event of a request is an event: its name is `eventType`
 * (`user.lifecycle.create`), its id `uuid`. The verification by `GET` is answered.
 *
 * @throws {@link WebhookConfigurationError}
 * @see https://developer.okta.com/docs/concepts/event-hooks/
 */
export function okta(options: StaticValueOptions): WebhookSender {
  return preset('okta', options, {
    header: 'authorization',
    split: ({ data }) => listAt(members(data)['data'], 'events') ?? [data],
    event: ({ data }) => stringAt(data, 'eventType'),
    id: ({ data }) => stringAt(data, 'uuid'),
    preflight: {
      methods: ['GET'],
      answer({ headers }) {
        const verification = headers.get('x-okta-verification-challenge');
        if (verification === undefined) return undefined;
        return { challengeAnswer: { verification: verification.slice(0, MAX_CHALLENGE) } };
      },
    },
    compose: ({ event: eventType, data, id: uuid }) => ({
      data: {
        eventType: 'com.okta.event_hook',
        data: { events: [{ uuid, eventType, ...testMembers(data) }] },
      },
    }),
  });
}

/**
 * Auth0 log streams, in any of their formats: JSON lines, JSON array or JSON object. The value is that of the stream's field
 * "Authorization token". The name of an event is its `data.type` (`s`, `fp`), its id `log_id`.
 *
 * @throws {@link WebhookConfigurationError}
 * @see https://auth0.com/docs/customize/log-streams/custom-log-streams
 */
export function auth0(options: StaticValueOptions): WebhookSender {
  return preset('auth0', options, {
    header: 'authorization',
    parse: parseLines,
    split: ({ data }) => (Array.isArray(data) ? data : undefined),
    event: ({ data }) => stringAt(data, 'data', 'type'),
    id: ({ data }) => stringAt(data, 'log_id'),
    compose: ({ event: type, data, id: log_id }) => ({
      data: [
        {
          log_id,
          ...testMembers(data),
          data: { type, ...testMembers(members(data)['data'], 'data.data') },
        },
      ],
    }),
  });
}

/** Reads JSON, or one JSON value a line, whatever the content type is: a stream of JSON lines has that of JSON by default. */
const parseLines: NonNullable<SenderParts['parse']> = (bytes, _form, maxMembers) => {
  const lines = bytes
    .toString('latin1')
    .split('\n')
    .map((line) => line.trim());
  const filled = lines.filter((line) => line !== '');
  // The lines of a value that is indented are no values themselves.
  const isLines = filled.length > 1 && filled.every((line) => /^\{.*\}$/s.test(line));
  const json = isLines ? Buffer.from(`[${filled.join(',')}]`, 'latin1') : bytes;
  return parseJsonPayload(json, 'application/json', maxMembers);
};

/**
 * GitLab. The value is the webhook's "Secret token". The event's name is the body's `object_kind`, or `event_name` if there is none,
 * followed by the action if there is one: `push`, `merge_request.open`. Its id is the header `Idempotency-Key`, which GitLab sends since
 * 17.4 and repeats with a retry; without it, the digest of the body identifies the event.
 *
 * @throws {@link WebhookConfigurationError}
 * @see https://docs.gitlab.com/user/project/integrations/webhooks/
 */
export function gitlab(options: StaticValueOptions): WebhookSender {
  return preset('gitlab', options, {
    header: 'x-gitlab-token',
    keptHeaders: ['x-gitlab-event-uuid', 'x-gitlab-instance'],
    event: ({ data }) => {
      const kind = stringAt(data, 'object_kind') ?? stringAt(data, 'event_name');
      const action = stringAt(data, 'object_attributes', 'action');
      return kind === undefined || action === undefined ? kind : `${kind}.${action}`;
    },
    id: ({ headers }) => headers.get('idempotency-key'),
    compose({ event, data, id }) {
      const [object_kind, action] = event.split('.');
      const attributes = members(data)['object_attributes'];
      return {
        headers: { 'idempotency-key': id },
        data: {
          object_kind,
          ...testMembers(data),
          ...(action !== undefined && {
            object_attributes: { action, ...testMembers(attributes, 'data.object_attributes') },
          }),
        },
      };
    },
  });
}

function preset(
  name: string,
  options: StaticValueOptions,
  form: Omit<StaticForm, 'name'>,
): WebhookSender {
  const { value, event = form.event } = readOptions(VALUE_OPTIONS, options, name);
  return createStaticSender({ ...form, name, event }, value);
}

function createStaticSender(form: StaticForm, values: readonly string[]): WebhookSender {
  const { header, compose } = form;
  return createSender({
    ...form,
    present: [header],
    tolerance: 0,
    bodyVerified: false,
    read(headers) {
      if (!isConfigured(signatureHeader(headers, header), values)) {
        throw new WebhookSignatureError(
          'invalid_signature',
          `the ${header} header has not the configured value`,
        );
      }
      return { holdFor: () => true };
    },
    sign(message) {
      const { headers, body } = composeTest(message, compose);
      return { headers: { ...headers, [header]: values[0]! }, body };
    },
  });
}

function listAt(data: unknown, name: string): readonly unknown[] | undefined {
  const list = members(data)[name];
  return Array.isArray(list) ? list : undefined;
}
