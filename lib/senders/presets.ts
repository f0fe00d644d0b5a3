import { isEventName } from '../token/event-name.js';
import { hmacPreset, type SecretOptions } from './hmac-sender.js';
import type { SenderMessage, WebhookSender } from './sender.js';
import { MAX_CHALLENGE, members, stringAt, testMembers } from './signature-header.js';

/**
 * Stripe. The event's name is its `type`, in which `.requirements` takes the place of `[requirements]`, its id its `id`; `event.data` is
 * the whole event of Stripe. Unlike Stripe's SDK, it also refuses times in the future.
 *
 * @throws {@link WebhookConfigurationError}
 * @see https://docs.stripe.com/webhooks/signature
 */
export function stripe(options: SecretOptions): WebhookSender {
  return hmacPreset('stripe', options, {
    signature: { header: 'stripe-signature', prefix: 'v1=', separator: ',' },
    timestamp: { prefix: 't=' },
    signed: '{timestamp}.{body}',
    // An event name has no brackets.
    event: ({ data }) => stringAt(data, 'type')?.replaceAll(/\[(\w+)\]/g, '.$1'),
    id: ({ data }) => stringAt(data, 'id'),
    compose: ({ event: type, data, id, now }) => ({
      data: { id, object: 'event', type, created: Math.floor(now / 1_000), ...testMembers(data) },
    }),
  });
}

/**
 * GitHub. The event's name is the header `X-GitHub-Event`, followed by the body's `action` if there is one: `issues.opened`, `push`. An
 * action of other characters than letters, digits, `_` and `-` is left out.
 *
 * GitHub signs neither the name nor the delivery's id nor a time, so the digest of the body identifies the event.
 *
 * @throws {@link WebhookConfigurationError}
 * @see https://docs.github.com/webhooks/using-webhooks/validating-webhook-deliveries
 */
export function github(options: SecretOptions): WebhookSender {
  return hmacPreset('github', options, {
    signature: { header: 'x-hub-signature-256', prefix: 'sha256=' },
    keptHeaders: ['x-github-delivery', 'x-github-hook-id'],
    event: ({ headers, data }) => {
      const event = headers.get('x-github-event');
      const action = stringAt(data, 'action');
      if (event === undefined || action === undefined) return event;
      const whole = `${event}.${action}`;
      // The action of a `repository_dispatch` is any text.
      return isEventName(whole, 'swt-draft-00') ? whole : event;
    },
    compose({ event, data, id }) {
      const [name = '', action] = event.split('.');
      return {
        headers: { 'x-github-event': name, 'x-github-delivery': id },
        data: { ...(action !== undefined && { action }), ...testMembers(data) },
      };
    },
  });
}

/** Slack's names: of an event of the Events API, of a slash command, or of an interaction. */
function slackName({ data }: SenderMessage): string | undefined {
  const name = stringAt(data, 'event', 'type');
  if (name !== undefined) return name;
  return stringAt(data, 'command')?.startsWith('/') === true
    ? 'slash_command'
    : stringAt(data, 'type');
}

/**
 * Slack. The event's name is that of the Events API (`app_mention`), `slash_command`, or the `type` of an interaction
 * (`block_actions`); its id is `event_id`, if it has one. The URL verification and a signed `ssl_check` are answered.
 * Unlike Slack's SDK, it also refuses times in the future.
 *
 * @throws {@link WebhookConfigurationError}
 * @see https://docs.slack.dev/authentication/verifying-requests-from-slack
 */
export function slack(options: SecretOptions): WebhookSender {
  return hmacPreset('slack', options, {
    signature: { header: 'x-slack-signature', prefix: 'v0=' },
    timestamp: { header: 'x-slack-request-timestamp' },
    signed: 'v0:{timestamp}:{body}',
    event: slackName,
    id: ({ data }) => stringAt(data, 'event_id'),
    challenge({ data }) {
      if (stringAt(data, 'ssl_check') === '1') return { challengeAnswer: {} };
      const challenge = stringAt(data, 'challenge');
      if (stringAt(data, 'type') !== 'url_verification' || challenge === undefined) {
        return undefined;
      }
      return { challengeAnswer: { challenge: challenge.slice(0, MAX_CHALLENGE) } };
    },
    compose({ event: type, data, id }) {
      const isInteraction = stringAt(data, 'type') === type || type === 'slash_command';
      return {
        data: isInteraction
          ? data
          : {
              type: 'event_callback',
              event_id: id,
              ...testMembers(data),
              event: {
                type,
                ...testMembers(members(data)['event'], 'data.event'),
              },
            },
      };
    },
  });
}

/**
 * Shopify. The event's name is the header `X-Shopify-Topic`, with full stops for slashes: `orders.create`.
 *
 * Shopify signs the body alone, and sends one body under several topics and for several shops: topic, shop and digest of the body
 * identify the event. The shop is in `event.claims.headers`, and no signature covers it.
 *
 * @throws {@link WebhookConfigurationError}
 * @see https://shopify.dev/docs/apps/build/webhooks/verify-deliveries
 */
export function shopify(options: SecretOptions): WebhookSender {
  return hmacPreset('shopify', options, {
    signature: { header: 'x-shopify-hmac-sha256', encoding: 'base64' },
    identifying: ['x-shopify-topic', 'x-shopify-shop-domain'],
    keptHeaders: ['x-shopify-shop-domain', 'x-shopify-webhook-id', 'x-shopify-triggered-at'],
    event: ({ headers }) => headers.get('x-shopify-topic')?.replaceAll('/', '.'),
    compose: ({ event, data, id }) => ({
      headers: { 'x-shopify-topic': event.replaceAll('.', '/'), 'x-shopify-webhook-id': id },
      data,
    }),
  });
}

/**
 * Zoom. The event's name is the body's `event`; Zoom sends no id, so the digest of the body identifies the event. The URL validation
 * is answered.
 *
 * @throws {@link WebhookConfigurationError}
 * @see https://developers.zoom.us/docs/api/webhooks/
 */
export function zoom(options: SecretOptions): WebhookSender {
  return hmacPreset('zoom', options, {
    signature: { header: 'x-zm-signature', prefix: 'v0=' },
    timestamp: { header: 'x-zm-request-timestamp' },
    signed: 'v0:{timestamp}:{body}',
    event: ({ data }) => stringAt(data, 'event'),
    challenge({ data }, { hmac }) {
      const plainToken = stringAt(data, 'payload', 'plainToken')?.slice(0, MAX_CHALLENGE);
      if (stringAt(data, 'event') !== 'endpoint.url_validation' || plainToken === undefined) {
        return undefined;
      }
      return { challengeAnswer: { plainToken, encryptedToken: hmac!(plainToken) } };
    },
    compose: ({ event, data, now }) => ({ data: { event, event_ts: now, ...testMembers(data) } }),
  });
}

/**
 * Paddle Billing. The event's name is its `event_type`, its id its `event_id`. Unlike Paddle's SDK, it compares every signature of a
 * rotation, and also refuses times in the future.
 *
 * @throws {@link WebhookConfigurationError}
 * @see https://developer.paddle.com/webhooks/signature-verification
 */
export function paddle(options: SecretOptions): WebhookSender {
  return hmacPreset('paddle', options, {
    signature: { header: 'paddle-signature', prefix: 'h1=', separator: ';' },
    timestamp: { prefix: 'ts=' },
    signed: '{timestamp}:{body}',
    event: ({ data }) => stringAt(data, 'event_type'),
    id: ({ data }) => stringAt(data, 'event_id'),
    compose: ({ event, data, id }) => ({
      data: { event_id: id, event_type: event, ...testMembers(data) },
    }),
  });
}

/**
 * Lemon Squeezy. The event's name is the body's `meta.event_name`. It signs no id and no time, so the digest of the body identifies the
 * event.
 *
 * @throws {@link WebhookConfigurationError}
 * @see https://docs.lemonsqueezy.com/help/webhooks/signing-requests
 */
export function lemonSqueezy(options: SecretOptions): WebhookSender {
  return hmacPreset('lemonSqueezy', options, {
    name: 'lemon-squeezy',
    signature: { header: 'x-signature' },
    event: ({ data }) => stringAt(data, 'meta', 'event_name'),
    compose: ({ event, data }) => ({
      headers: { 'x-event-name': event },
      data: {
        ...testMembers(data),
        meta: {
          event_name: event,
          ...testMembers(members(data)['meta'], 'data.meta'),
        },
      },
    }),
  });
}
