import type { ResolvedPublisherOptions } from '../publisher/publisher-options.resolver.js';
import type { ResolvedInbox } from '../receiver/inbox/inbox-options.js';
import type { ResolvedReceivers } from '../receiver/receiver-options.interface.js';

/** A store, and the option it is configured by. */
export interface CheckedStore {
  readonly path: string;
  /** A store that does not extend the abstract class may have no check. */
  readonly store: { check?(): void | Promise<void> };
}

/** The resolved options of a webhook module that name stores. */
export interface StoreOptions {
  readonly receivers: ResolvedReceivers;
  readonly inbox: ResolvedInbox | undefined;
  /** Absent if nothing is published. */
  readonly publisher: ResolvedPublisherOptions | undefined;
}

/** The configured stores of both sides. */
export function configuredStores({ receivers, inbox, publisher }: StoreOptions): CheckedStore[] {
  const stores: CheckedStore[] = [...receivers.values()].map(({ name, replayStore }) => ({
    path: `receiver "${name}".replay.store`,
    store: replayStore,
  }));
  if (inbox !== undefined) stores.push({ path: 'inbox.store', store: inbox.store });
  if (publisher === undefined) return stores;
  stores.push({ path: 'publisher.endpointStore', store: publisher.endpointStore });
  return stores;
}
