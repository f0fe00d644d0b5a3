import { describe, expect, it } from '@jest/globals';
import { StoredEndpoints } from '../../lib/endpoints/stored.endpoints.js';
import type { StoredEndpoint } from '../../lib/endpoints/endpoint-store.js';
import { PublisherBench } from '../publisher/publisher-bench.js';

const BEFORE: StoredEndpoint = {
  id: 'crm',
  url: 'https://old.example/hooks',
  events: ['**'],
  settings: {},
  keys: [],
  version: 1,
  createdAt: 1,
  updatedAt: 1,
};

async function cache(): Promise<StoredEndpoints> {
  const { options } = await PublisherBench.start();
  return new StoredEndpoints(options);
}

describe('an older version that arrives after a newer one', () => {
  it.each<[string, Partial<StoredEndpoint>]>([
    ['another URL', { url: 'https://new.example/hooks' }],
    ['being enabled again', { enabledAt: 2 }],
  ])('does not share its state with a version that has %s', async (_, change) => {
    const known = await cache();
    const now = known.of({ ...BEFORE, ...change, version: 2 });
    known.of(BEFORE).state.disabled = { at: 3, reason: 'gone' };

    expect(now.state.disabled).toBeUndefined();
    expect(known.of({ ...BEFORE, ...change, version: 2 })).toBe(now);
  });

  it('shares its state with a version that has the same URL', async () => {
    const known = await cache();
    const now = known.of({ ...BEFORE, description: 'renamed', version: 2 });

    expect(known.of(BEFORE).state).toBe(now.state);
  });
});
