import { describe, expect, it } from '@jest/globals';
import { MemoryInboxStore } from '../../lib/inbox/memory-inbox.store.js';
import { inboxStoreContract } from '../../lib/testing/inbox-store.contract.js';

describe('MemoryInboxStore', () => {
  for (const { name, run } of inboxStoreContract({
    create: (bounds) => new MemoryInboxStore(bounds),
  })) {
    it(name, run);
  }

  it.each([{ maxAccepted: 0 }, { maxRefused: 1.5 }])('refuses the bounds %o', (bounds) => {
    expect(() => new MemoryInboxStore(bounds)).toThrow('must be a whole number of entries');
  });
});

describe('MemoryInboxStore', () => {
  it('keeps duplicates in a share of their own, so that copies displace no other event', async () => {
    const store = new MemoryInboxStore({ maxAccepted: 20 });
    const record = (id: string, outcome: 'handled' | 'duplicate'): Promise<void> =>
      store.record([
        { id, at: 0, outcome, status: 204, method: 'POST', path: '/', authenticated: true },
      ]);
    for (let i = 0; i < 20; i++) await record(`a${i}`, 'handled');
    for (let i = 0; i < 100; i++) await record(`b${i}`, 'duplicate');

    expect(await store.list({ outcome: 'handled' }, { limit: 500 })).toHaveLength(20);
    expect(await store.list({ outcome: 'duplicate' }, { limit: 500 })).toHaveLength(2);
  });
});
