/** Senders that sign webhooks in another way than by tokens, for the option `sender` of a receiver. */
export { standardWebhooks } from './standard-webhooks.js';
export type { StandardWebhooksOptions } from './standard-webhooks.js';
export { github, lemonSqueezy, paddle, shopify, slack, stripe, zoom } from './presets.js';
export { hmacSender } from './hmac-sender.js';
export type { HmacSenderOptions, HmacSignature, SecretOptions } from './hmac-sender.js';
export { jwtSender } from './jwt-sender.js';
export type { ExpectedClaims, JwtDigest, JwtSenderOptions } from './jwt-sender.js';
export type { JwtKeyOptions, KeyLookup } from './jwt-keys.js';
export { a2a, plaid, qstash } from './jwt-presets.js';
export type { A2aOptions, PlaidKey, PlaidOptions, QstashOptions } from './jwt-presets.js';
export { eventGrid, googlePush } from './cloud-presets.js';
export type { EventGridOptions, GooglePushOptions } from './cloud-presets.js';
export { graph } from './graph.js';
export type { GraphOptions } from './graph.js';
export { securityEvents } from './security-events.js';
export type { PollOptions } from './event-poll.js';
export type { SecurityEventsOptions } from './security-events.js';
export { auth0, gitlab, okta, staticToken } from './static-token.js';
export type { StaticTokenOptions, StaticValueOptions } from './static-token.js';
export type {
  SenderMessage,
  SenderOptions,
  SignedTestMessage,
  TestMessage,
  WebhookSender,
} from './sender.js';
