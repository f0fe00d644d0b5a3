import { describe, expect, it } from '@jest/globals';
import { inboxStoreContract } from 'nestjs-webhook-token/testing';
import type { InboxFilter } from '../../lib/inbox/inbox-store.js';
import { MemoryInboxStore } from '../../lib/inbox/memory-inbox.store.js';

describe('MemoryInboxStore', () => {
  for (const { name, run } of inboxStoreContract({
    create: (bounds) => new MemoryInboxStore(bounds),
  })) {
    it(name, run);
  }

  it.each(['outcome', 'kind', 'code', 'receiver', 'event', 'since', 'until'])(
    'differs from a store that erases whatever the filter says of %s',
    async (member) => {
      class Erasing extends MemoryInboxStore {
        override async erase(filter: InboxFilter): Promise<number> {
          return super.erase({ ...filter, [member]: undefined });
        }
      }
      const cases = inboxStoreContract({ create: (bounds) => new Erasing(bounds) });
      const erases = cases.find(({ name }) => name.startsWith('erases what matches'))!;

      await expect(erases.run()).rejects.toThrow(`erase by ${member}`);
    },
  );

  it('settles the newest entry of a queued event after an older one was displaced', async () => {
    const store = new MemoryInboxStore({ maxAccepted: 1 });
    const entry = {
      at: 0,
      outcome: 'queued',
      status: 202,
      method: 'POST',
      path: '/webhooks',
      authenticated: true,
      deliveryId: 'd1',
    } as const;
    await store.record([
      { ...entry, id: '1' },
      { ...entry, id: '2' },
    ]);
    const unknown = await store.settle([{ deliveryId: 'd1', outcome: 'handled', runs: 1 }]);

    expect(unknown).toEqual([]);
    expect(await store.find('2')).toEqual({ ...entry, id: '2', outcome: 'handled', runs: 1 });
  });

  it.each([{ maxAccepted: 0 }, { maxRefused: 1.5 }])('refuses the bounds %o', (bounds) => {
    expect(() => new MemoryInboxStore(bounds)).toThrow('must be a whole number of entries');
  });
});
