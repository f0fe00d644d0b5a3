import { isDeepStrictEqual } from 'node:util';
import type { ReceivedReceipt, WebhookReceipt } from './webhook-receipt.interface.js';

/** A field in which two receipts differ; a side that lacks it has no value. */
export interface ReceiptDifference {
  readonly field: keyof WebhookReceipt;
  readonly sent?: unknown;
  readonly received?: unknown;
}

/** Every field, in the order in which a difference is told: one further up explains those below it. */
const FIELDS = [
  'tokenSha256',
  'id',
  'jti',
  'txn',
  'event',
  'issuer',
  'audience',
  'subject',
  'alg',
  'kid',
  'profile',
  'issuedAt',
  'expiresAt',
  'hash',
  'method',
  'contentType',
  'bodyBytes',
] as const satisfies readonly (keyof WebhookReceipt)[];

/**
 * Lists where what arrived is not what was sent.
 *
 * @param sent - of `publisher.send()` or `publisher.sign()`
 * @param received - of `WebhookVerifier.explain()`, or another sender's
 * @returns the differing fields with both values; none where the request arrived as it left
 */
export function compareReceipts(
  sent: Partial<WebhookReceipt>,
  received: Partial<WebhookReceipt> | ReceivedReceipt,
): ReceiptDifference[] {
  return FIELDS.filter((field) => differ(field, sent[field], received[field])).map((field) => ({
    field,
    ...(sent[field] !== undefined && { sent: sent[field] }),
    ...(received[field] !== undefined && { received: received[field] }),
  }));
}

function differ(field: keyof WebhookReceipt, sent: unknown, received: unknown): boolean {
  // A receiver that could not verify the token does not know its wire format; that is no difference.
  if (field === 'profile' && (sent === undefined || received === undefined)) return false;
  return !isDeepStrictEqual(sent, received);
}
