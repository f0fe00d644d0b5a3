import { fileURLToPath } from 'node:url';

export const EVENT = 'order.created';

/** Concurrent requests of a sender. */
export const CONCURRENCY = 50;

/** The variants, the baseline first. */
export const VARIANTS = {
  'http-service': 'HttpService, the same signing',
  jose: 'HttpService and jose, as people write it',
  'http-service-retry': 'HttpService with a deadline and a retry',
  'node-http': 'node:http with keep-alive, by hand',
  send: 'nestjs-webhook-token, send',
  publish: 'nestjs-webhook-token, publish',
  'send-default': 'send, at most 12 at once',
  'send-interceptor': 'send, HttpService with an interceptor',
};

/** Method and number of order lines: about 1 kB and about 300 B of JSON. `variants`: all by default. */
export const LOADS = {
  'POST, 1 kB': { method: 'POST', lines: 14 },
  'HEAD, 300 B': { method: 'HEAD', lines: 4 },
  'POST, 1 kB, TLS': {
    method: 'POST',
    lines: 14,
    tls: true,
    variants: ['http-service', 'node-http', 'send'],
  },
};

const certificates = new URL('../../test/egress/certificates/', import.meta.url);

/** Certificate and key of a server on 127.0.0.1; senders trust the certificate. */
export const CERTIFICATE = fileURLToPath(new URL('hooks.test.cert.pem', certificates));
export const CERTIFICATE_KEY = fileURLToPath(new URL('hooks.test.key.pem', certificates));
