import type { Duration } from '../clock/duration.js';
import { WebhookConfigurationError, isWebhookError } from '../errors/webhook.error.js';
import { EGRESS, type EgressOptions, EgressPolicy } from '../egress/egress-policy.js';
import { createJsonClient, UnreadableAnswer } from '../keys/json-client.js';
import { CERTIFICATES, type JwksFetchOptions } from '../keys/jwks-options.js';
import { reasonOf } from '../keys/key-log.js';
import {
  duration,
  either,
  flag,
  func,
  object,
  optional,
  type Read,
  required,
  text,
  whole,
} from '../options/rules.js';
import { fromRequestLike } from '../request/request-like.js';
import type { EventPoll, SenderAnswer } from '../request/webhook-scheme.js';
import { isObject } from '../token/json.js';
import { MAX_TOKEN_BYTES } from '../token/webhook-token.constants.js';

/** How security event tokens are fetched: RFC 8936. */
export interface PollOptions extends EgressOptions, Pick<JwksFetchOptions, 'ca'> {
  /** The `endpoint_url` of the stream. */
  readonly url: string;
  /** The Authorization header of each request, or a function that returns it, such as `async () => 'Bearer …'`. */
  readonly authorization?: string | (() => string | Promise<string>) | undefined;
  /** The most tokens of one answer; default 25. */
  readonly maxEvents?: number | undefined;
  /** Whether the transmitter may hold a request until there is an event; default `true`. */
  readonly longPolling?: boolean | undefined;
  /**
   * Time from one request to the next if the first found no event, in milliseconds or as a string; default `'5s'`. If the transmitter
   * held the first one for longer, the next follows at once.
   */
  readonly interval?: Duration | undefined;
  /** Maximum time of a request, longer than the transmitter holds it; default `'5m'`. */
  readonly timeout?: Duration | undefined;
}

export const POLL = object<PollOptions>()({
  ...EGRESS,
  ca: optional(CERTIFICATES),
  url: required(text()),
  authorization: optional(
    either(
      (value) => typeof value === 'function',
      func<() => string | Promise<string>>("async () => 'Bearer …'"),
      text("must be the whole header, such as 'Bearer …', or a function that returns it"),
    ),
  ),
  maxEvents: optional(whole(1, 1_000), 25),
  longPolling: optional(flag, true),
  interval: optional(duration(), 5_000),
  timeout: optional(duration({ isTimeout: true }), 300_000),
});

/** Bytes of an answer besides its tokens, for each of them. */
const OVERHEAD = 1_024;

/**
 * Creates the poll of a stream.
 *
 * @param headers - of the request that a fetched token is received as
 * @param settle - the answer of RFC 8935, whose codes are those of RFC 8936
 * @throws {@link WebhookConfigurationError} for a URL that the egress policy refuses
 */
export function createPoll(
  options: Read<typeof POLL>,
  headers: Readonly<Record<string, string>>,
  settle: EventPoll['settle'],
): EventPoll {
  const { authorization, maxEvents, longPolling, interval, timeout, ca } = options;
  const policy = new EgressPolicy(options);
  const url = checkedUrl(options, policy);
  const requestJson = createJsonClient({ policy, ca });
  return {
    url: `${url.origin}${url.pathname}`,
    interval,
    timeout,
    settle,
    async fetch(settled, { signal, last = false }) {
      const document = await requestJson(url, {
        headers: {
          accept: 'application/json',
          'content-language': 'en',
          ...(authorization !== undefined && { authorization: await valueOf(authorization) }),
        },
        body: JSON.stringify({
          maxEvents: last ? 0 : maxEvents,
          returnImmediately: last || !longPolling,
          ...reportOf(settled),
        }),
        signal,
        maxBytes: (maxEvents + 1) * (MAX_TOKEN_BYTES + OVERHEAD),
      });
      const { sets = {}, moreAvailable } = isObject(document) ? document : {};
      if (!isObject(document) || !isObject(sets)) {
        throw new UnreadableAnswer('the answer has no object "sets"');
      }
      const events = Object.entries(sets).map(([id, token]) => {
        // A token that is no string is reported as an invalid one.
        const body = typeof token === 'string' ? token : '';
        return [id, fromRequestLike({ method: 'POST', url: url.href, headers, body })] as const;
      });
      return { events: new Map(events), more: moreAvailable === true };
    },
  };
}

function checkedUrl({ url, allowHttp }: Read<typeof POLL>, policy: EgressPolicy): URL {
  const refuse = (message: string): WebhookConfigurationError =>
    new WebhookConfigurationError([{ path: 'securityEvents.poll.url', message }]);
  if (!allowHttp && /^\s*http:/i.test(url)) {
    throw refuse('must be an https: URL; for a test, set poll.allowHttp');
  }
  try {
    return policy.checkUrl(url);
  } catch (error) {
    throw isWebhookError(error) ? refuse(error.message) : error;
  }
}

async function valueOf(
  authorization: NonNullable<Read<typeof POLL>['authorization']>,
): Promise<string> {
  if (typeof authorization === 'string') return authorization;
  try {
    return await authorization();
  } catch (cause) {
    const message = `the function "authorization" failed, ${reasonOf(cause)}`;
    throw new UnreadableAnswer(message, undefined, { cause });
  }
}

/** The members `ack` and `setErrs` of a request, RFC 8936, section 2.2. */
function reportOf(settled: ReadonlyMap<string, SenderAnswer>): object {
  const all = [...settled];
  const ack = all.flatMap(([id, { body }]) => (body === undefined ? [id] : []));
  const errors = all.flatMap(([id, { body }]) => (body === undefined ? [] : [[id, body] as const]));
  return {
    ...(ack.length > 0 && { ack }),
    ...(errors.length > 0 && { setErrs: Object.fromEntries(errors) }),
  };
}
