/** Senders that sign webhooks in another way than by tokens, for the option `sender` of a receiver. */
export { standardWebhooks } from './standard-webhooks.js';
export { github, lemonSqueezy, paddle, shopify, slack, stripe, zoom } from './presets.js';
export { customSender } from './custom-sender.js';
export { hmacSender } from './hmac-sender.js';
export { jwtSender } from './jwt-sender.js';
export { a2a, plaid, qstash } from './jwt-presets.js';
export type { PlaidKey } from './jwt-presets.js';
export { eventGrid, googlePush } from './cloud-presets.js';
export { graph } from './graph.js';
export { securityEvents } from './security-events.js';
export { auth0, gitlab, okta, staticToken } from './static-token.js';
export type { SenderMessage, WebhookSender } from './sender.js';
