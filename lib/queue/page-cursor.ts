import type { Rule } from '../options/rules.js';
import { isIdentifier } from '../token/identifier.js';
import type { DeliveryPageRequest } from './webhook-queue.js';

/** The latest time that a Date can represent, in epoch milliseconds. */
const MAX_TIME = 8.64e15;

/** An opaque string that says where the next page begins. */
export function cursorOf({ createdAt, id }: { createdAt: number; id: string }): string {
  return Buffer.from(JSON.stringify([createdAt, id])).toString('base64url');
}

/** The rule that a cursor breaks, for messages. */
export const CURSOR_RULE = 'must be `next` of the previous page, unchanged';

/** Reads what {@link cursorOf} returned. */
export const cursor: Rule<NonNullable<DeliveryPageRequest['after']>> = (after, at, name) => {
  const [createdAt, id] = cursorParts(after);
  if (isTime(createdAt) && isIdentifier(id)) return { createdAt, id };
  return at.add(name, CURSOR_RULE) as never;
};

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
