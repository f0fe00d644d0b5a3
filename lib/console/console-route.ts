import { isWebhookError } from '../errors/webhook.error.js';
import type { ConsoleCapability } from './console-api.js';
import type { ActionFacts, ConsoleAccess, ConsoleRequest } from './console-session.js';

/** A call of the API: its path, what it needs, and what it does. */
export interface ConsoleRoute {
  readonly method: 'GET' | 'POST' | 'PATCH' | 'DELETE';
  /** Segments after `api/`; `:id` matches any. */
  readonly path: string;
  readonly needs: readonly ConsoleCapability[];
  /** Whether the portal has it too. */
  readonly inPortal: boolean;
  /** Default 200; 204 if the answer is `undefined`. */
  readonly status?: number;
  /** Calls a minute of one tenant or operator; default: any number. */
  readonly perMinute?: number;
  /** Whether it reads many rows of a store, so that only some run at the same time. */
  readonly isRead?: boolean;
  readonly run: (call: ConsoleCall) => unknown;
  /** Reads the tenant of what the action changes, before it does. */
  readonly owner?: (call: ConsoleCall) => Promise<string | undefined>;
  readonly action?: (call: ConsoleCall, answer: unknown) => ActionFacts | undefined;
}

/** A request with its access and the id of its path. */
export interface ConsoleCall extends ConsoleRequest {
  readonly access: ConsoleAccess;
  readonly id: string;
}

export const PAGE_QUERY = ['after', 'limit'] as const;

/** A call that reads, for console and portal. */
export function read(path: string, run: ConsoleRoute['run']): ConsoleRoute {
  return { method: 'GET', path, needs: ['view'], inPortal: true, isRead: true, run };
}

/** A call that changes something, for console and portal. */
export function act(
  method: ConsoleRoute['method'],
  path: string,
  needs: readonly ConsoleCapability[],
  run: ConsoleRoute['run'],
): ConsoleRoute {
  return { method, path, needs, inPortal: true, run };
}

/** Keeps a call from the portal, if what it reads belongs to no tenant. */
export function ownOnly(route: ConsoleRoute): ConsoleRoute {
  return { ...route, inPortal: false };
}

/** The tenant of the session, which the library checks. */
export function scopeOf({
  tenant,
}: Pick<ConsoleAccess, 'tenant'>): { readonly tenant: string } | undefined {
  return tenant === undefined ? undefined : { tenant };
}

/** `undefined` if the application has no such part. */
export async function optional<T>(read: () => Promise<T>): Promise<T | undefined> {
  try {
    return await read();
  } catch (error) {
    if (isMissingPart(error)) return undefined;
    throw error;
  }
}

/** Reads of one call that run at the same time. */
const AT_ONCE = 4;

/** Reads something of each item; the results are in the order of the items. */
export async function readEach<Item, Result>(
  items: readonly Item[],
  readOne: (item: Item, index: number) => Promise<Result>,
): Promise<Result[]> {
  const results: Result[] = [];
  // Shared, so that each item is taken once.
  const left = items.entries();
  const readNext = async (): Promise<void> => {
    for (const [index, item] of left) results[index] = await readOne(item, index);
  };
  await Promise.all(Array.from({ length: AT_ONCE }, readNext));
  return results;
}

/** Whether the application has no such part. */
export function isMissingPart(error: unknown): boolean {
  return (
    isWebhookError(error, 'invalid_configuration') || isWebhookError(error, 'unsupported_option')
  );
}
