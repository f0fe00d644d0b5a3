import { matchesEvent } from '../token/event-name.js';
import type { StoredEndpoint } from './endpoint-store.js';

/** The events of an endpoint, and whose they are. */
type Subscriber = Pick<StoredEndpoint, 'events' | 'tenant'>;

/**
 * The keys under which an index holds an endpoint: each pattern up to its first wildcard, with the tenant. So an event finds
 * its endpoints by a few keys, however many endpoints there are; only patterns that begin with a wildcard share one key.
 */
export function subscriptionKeys({ events, tenant }: Subscriber): string[] {
  return withTenant(new Set(events.map(literalPart)), tenant);
}

/** The keys of all endpoints that can subscribe to an event: for `a.b`, those of `a.b`, `a.b.**`, `a.**` and `**`. */
export function keysOfEvent(event: string, tenant: string | undefined): string[] {
  const segments = event.split('.');
  const prefixes = segments.map((_, index) => [...segments.slice(0, index + 1), '**'].join('.'));
  return withTenant([event, ...prefixes, '**'], tenant);
}

/** Whether an endpoint subscribes to an event. */
export function subscribesTo({ events }: Pick<Subscriber, 'events'>, event: string): boolean {
  return events.some((pattern) => matchesEvent(pattern, event));
}

function literalPart(pattern: string): string {
  const segments = pattern.split('.');
  const wildcard = segments.findIndex((segment) => segment.startsWith('*'));
  return wildcard < 0 ? pattern : [...segments.slice(0, wildcard), '**'].join('.');
}

/** No event name contains a slash, so the tenant begins after the first one. */
function withTenant(keys: Iterable<string>, tenant: string | undefined): string[] {
  return Array.from(keys, (key) => (tenant === undefined ? key : `${key}/${tenant}`));
}

/** Finds the endpoints that subscribe to an event, in the order in which they were added. */
export class SubscriptionIndex<T extends Subscriber> {
  private readonly byKey = new Map<string, Set<T>>();
  private readonly places = new Map<T, number>();
  private added = 0;

  add(endpoint: T): void {
    this.places.set(endpoint, this.added++);
    for (const key of subscriptionKeys(endpoint)) {
      const found = this.byKey.get(key);
      if (found === undefined) this.byKey.set(key, new Set([endpoint]));
      else found.add(endpoint);
    }
  }

  /** @param endpoint - the object that was added */
  remove(endpoint: T): void {
    this.places.delete(endpoint);
    for (const key of subscriptionKeys(endpoint)) {
      const found = this.byKey.get(key);
      found?.delete(endpoint);
      // Empty sets of former tenants would add up.
      if (found?.size === 0) this.byKey.delete(key);
    }
  }

  find(event: string, tenant: string | undefined): T[] {
    const keys = keysOfEvent(event, tenant);
    const candidates = new Set(keys.flatMap((key) => [...(this.byKey.get(key) ?? [])]));
    return [...candidates]
      .filter((endpoint) => subscribesTo(endpoint, event))
      .sort((a, b) => this.places.get(a)! - this.places.get(b)!);
  }
}
