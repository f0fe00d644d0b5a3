import { matchesEvent } from '../token/event-name.js';
import { keysOfEvent, type StoredEndpoint, subscriptionKeys } from './endpoint-store.js';

/** The events of an endpoint, and whose they are. */
type Subscriber = Pick<StoredEndpoint, 'events' | 'tenant'>;

/** Whether an endpoint subscribes to an event. */
export function subscribesTo({ events }: Pick<Subscriber, 'events'>, event: string): boolean {
  return events.some((pattern) => matchesEvent(pattern, event));
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
