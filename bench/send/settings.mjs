export const EVENT = 'order.created';

/** Requests that a sender has under way at once. */
export const CONCURRENCY = 50;

/** What is sent: the baseline first. */
export const VARIANTS = {
  'http-service': 'HttpService, the same signing',
  jose: 'HttpService and jose, as people write it',
  'node-http': 'node:http with keep-alive, by hand',
  undici: 'undici, by hand',
  'send-undici': 'nestjs-webhook-token over undici, send',
  'publish-undici': 'nestjs-webhook-token over undici, publish',
  'send-axios': 'nestjs-webhook-token over axios, send',
};

/** How an event travels; `lines` make about 1 kB of JSON, and about 300 B. */
export const LOADS = {
  'POST, 1 kB': { method: 'POST', lines: 14 },
  'HEAD, 300 B': { method: 'HEAD', lines: 4 },
};
