export const EVENT = 'order.created';

/** Concurrent requests of a sender. */
export const CONCURRENCY = 50;

/** The variants, the baseline first. */
export const VARIANTS = {
  'http-service': 'HttpService, the same signing',
  jose: 'HttpService and jose, as people write it',
  'node-http': 'node:http with keep-alive, by hand',
  undici: 'undici, by hand',
  'send-undici': 'nestjs-webhook-token over undici, send',
  'publish-undici': 'nestjs-webhook-token over undici, publish',
  'send-axios': 'nestjs-webhook-token over axios, send',
};

/** Method and number of order lines: about 1 kB and about 300 B of JSON. */
export const LOADS = {
  'POST, 1 kB': { method: 'POST', lines: 14 },
  'HEAD, 300 B': { method: 'HEAD', lines: 4 },
};
