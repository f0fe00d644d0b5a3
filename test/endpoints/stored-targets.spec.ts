import { describe, expect, it } from '@jest/globals';
import { StoredTargets } from '../../lib/endpoints/stored-targets.js';
import type { StoredEndpoint } from '../../lib/endpoints/endpoint-store.js';
import { resolvePublisherOptions } from '../../lib/publisher/publisher-options.resolver.js';
import { TestClock } from '../../lib/testing/test-clock.js';
import { secret } from '../publisher/publisher-bench.js';

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

function targets(): StoredTargets {
  const { resolved } = resolvePublisherOptions(
    { issuer: 'https://billing.example', secret },
    { clock: new TestClock(), production: false },
  );
  return new StoredTargets(resolved!);
}

describe('a version that was read before a change and comes after it', () => {
  it.each<[string, Partial<StoredEndpoint>]>([
    ['another URL', { url: 'https://new.example/hooks' }],
    ['being enabled again', { enabledAt: 2 }],
  ])('teaches nothing to the one with %s', (_, change) => {
    const known = targets();
    const now = known.of({ ...BEFORE, ...change, version: 2 });
    known.of(BEFORE).state.disabled = { at: 3, reason: 'gone' };

    expect(now.state.disabled).toBeUndefined();
    expect(known.of({ ...BEFORE, ...change, version: 2 })).toBe(now);
  });

  it('shares what is learnt with one that is reached alike', () => {
    const known = targets();
    const now = known.of({ ...BEFORE, description: 'renamed', version: 2 });

    expect(known.of(BEFORE).state).toBe(now.state);
  });
});
