import { createTokenSigner, digest } from '../../dist/token/index.js';
import { Webhook } from 'standardwebhooks';
import { dataOf, ISSUER, SECRET } from '../event.mjs';
import { PATH } from './settings.mjs';

const signer = createTokenSigner({ issuer: ISSUER, key: SECRET });
const forger = createTokenSigner({ issuer: ISSUER, key: `${SECRET}-of-another-issuer` });
const webhook = new Webhook(Buffer.from(SECRET).toString('base64'));

/** Minimum size of an order line in bytes. */
const LINE = 68;

/** A JSON body of exactly this many bytes: many small members, like an order or invoice, and a note as padding. */
export function bodyOf(bytes) {
  let order;
  let left = -1;
  for (let lines = Math.floor(bytes / LINE); left < 0; lines--) {
    order = { ...dataOf(lines), note: '' };
    left = bytes - JSON.stringify(order).length;
  }
  return Buffer.from(JSON.stringify({ ...order, note: 'x'.repeat(left) }));
}

/** HEAD requests that carry this data in the token. */
export function headRequests(count, data, { forged = false } = {}) {
  return Array.from({ length: count }, () =>
    head('HEAD', [bearer({ event: 'order.created', data }, forged)]),
  );
}

/** Values of the `Authorization` header, each with its own token. */
export function authorizations(count, data) {
  return Array.from({ length: count }, () => credentials({ event: 'order.created', data }, false));
}

/** POST requests with a body, whose digest is in the token. */
export function postRequests(count, body, { forged = false, standard = false } = {}) {
  const hash = digest('sha256', body);
  return Array.from({ length: count }, () => {
    const lines = standard
      ? standardHeaders(body, forged)
      : [bearer({ event: 'order.created', hash }, forged)];
    const type = ['Content-Type: application/json', `Content-Length: ${body.length}`];
    return Buffer.concat([head('POST', [...lines, ...type]), body]);
  });
}

function bearer(input, forged) {
  return `Authorization: ${credentials(input, forged)}`;
}

function credentials(input, forged) {
  const token = /** @type {string} */ ((forged ? forger : signer).sign(input));
  return `Bearer ${token}`;
}

function standardHeaders(body, forged) {
  const now = new Date();
  const signature = webhook.sign('msg_1', now, forged ? 'another body' : body.toString());
  return [
    'webhook-id: msg_1',
    `webhook-timestamp: ${Math.floor(now / 1_000)}`,
    `webhook-signature: ${signature}`,
  ];
}

function head(method, lines) {
  return Buffer.from(
    [`${method} ${PATH} HTTP/1.1`, 'Host: 127.0.0.1', ...lines, '', ''].join('\r\n'),
  );
}
