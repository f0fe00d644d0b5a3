import { invalidOption } from '../options/strict-options.js';
import { isIdentifier } from '../token/identifier.js';
import type { DeliveryPageRequest } from './delivery-record.js';

/** The latest time that a Date can represent, in epoch milliseconds. */
const MAX_TIME = 8.64e15;

/** An opaque string that says where the next page begins. */
export function cursorOf({ createdAt, id }: { createdAt: number; id: string }): string {
  return Buffer.from(JSON.stringify([createdAt, id])).toString('base64url');
}

/** @throws {@link WebhookDeliveryError} `invalid_option` */
export function readCursor(after: unknown): DeliveryPageRequest['after'] {
  if (after === undefined) return undefined;
  const [createdAt, id] = cursorParts(after);
  if (isTime(createdAt) && isIdentifier(id)) return { createdAt, id };
  throw invalidOption('options.after: must be `next` of the previous page, unchanged');
}

/** @throws {@link WebhookDeliveryError} `invalid_option` */
export function readLimit(limit: unknown, fallback: number, most: number): number {
  if (limit === undefined) return fallback;
  if (Number.isSafeInteger(limit) && (limit as number) >= 1 && (limit as number) <= most) {
    return limit as number;
  }
  throw invalidOption(`options.limit: must be a whole number from 1 to ${most}`);
}

function cursorParts(after: unknown): readonly unknown[] {
  if (typeof after !== 'string') return [];
  try {
    const parts: unknown = JSON.parse(Buffer.from(after, 'base64url').toString());
    return Array.isArray(parts) && parts.length === 2 ? parts : [];
  } catch {
    return [];
  }
}

/** Databases have narrower ranges than numbers. */
function isTime(value: unknown): value is number {
  return Number.isSafeInteger(value) && (value as number) >= 0 && (value as number) <= MAX_TIME;
}
