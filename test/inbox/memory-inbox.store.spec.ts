import { describe, expect, it } from '@jest/globals';
import { inboxStoreContract } from 'nestjs-webhook-token/testing';
import { MemoryInboxStore } from '../../lib/inbox/memory-inbox.store.js';

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
