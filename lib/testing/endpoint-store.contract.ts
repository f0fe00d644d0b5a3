import assert from 'node:assert/strict';
import type {
  EndpointPageRequest,
  EndpointStore,
  StoredEndpoint,
} from '../endpoints/endpoint-store.js';
import type { StoredActivity } from '../endpoints/activity-store.js';
import type { ContractCase } from './contract-case.interface.js';

/** How the contract creates stores to test. */
export interface EndpointStoreContractOptions {
  /** Creates an empty store for one case. */
  readonly create: () => EndpointStore | Promise<EndpointStore>;
}

const AT = Date.UTC(2026, 0, 1);
/** Every pattern of an endpoint in these cases matches it, unless the case says otherwise. */
const EVENT = 'order.created';
const CONCURRENT = 50;
const MANY = 1_000;

/** Ids that a text column, a collation or a URL may mishandle, in the order of their code units. */
const ODD_IDS = [
  "'; DROP TABLE endpoints; --",
  '%',
  'A',
  'Z',
  '_',
  'a',
  'a b',
  'a/b?c=d#e',
  'z',
  'Ä',
  'e\u0301',
  'é',
  '名前',
  '😀',
  '\uFF5E',
].sort();

/** The contract of {@link EndpointStore}, as cases for any test framework. */
export function endpointStoreContract({ create }: EndpointStoreContractOptions): ContractCase[] {
  const holding: Holding = async (...endpoints) => {
    const store = await create();
    for (const endpoint of endpoints) {
      assert.equal(await store.insert(endpoint), true, 'an unused id must be accepted');
    }
    return store;
  };
  return Object.entries({ ...READING, ...WRITING, ...ACTIVITY }).map(([name, check]) => ({
    name,
    run: () => check(holding),
  }));
}

/** Creates a store that contains these endpoints. */
type Holding = (...endpoints: readonly StoredEndpoint[]) => Promise<EndpointStore>;

type Cases = Readonly<Record<string, (holding: Holding) => Promise<void>>>;

const READING: Cases = {
  'declares whether it is durable': async (holding) => {
    const { durable } = await holding();

    assert.equal(typeof durable, 'boolean');
  },

  'finds an endpoint by its exact id': async (holding) => {
    const store = await holding(endpointNamed('a'), endpointNamed('b', { tenant: 't' }));

    same(core(await store.find('a')), core(endpointNamed('a')));
    same(core(await store.find('b')), core(endpointNamed('b', { tenant: 't' })));
    assert.equal(await store.find('A'), undefined, 'ids must be compared exactly');
    assert.equal(await store.find('missing'), undefined);
    assert.equal(await store.find('__proto__'), undefined);
  },

  'returns the enabled endpoints of exactly one tenant': async (holding) => {
    const store = await holding(
      endpointNamed('none-1'),
      endpointNamed('none-2', { events: ['order.*'] }),
      endpointNamed('acme-1', { tenant: 'acme' }),
      endpointNamed('acme-2', { tenant: 'acme', events: ['order.*', 'refund.**'] }),
      endpointNamed('cased', { tenant: 'ACME' }),
      endpointNamed('spaced', { tenant: 'acme ' }),
      endpointNamed('texts', { tenant: 'null' }),
    );
    const of = async (tenant: string | undefined): Promise<string[]> =>
      idsOf(await store.subscribed(EVENT, tenant)).sort();

    same(await of('acme'), ['acme-1', 'acme-2']);
    same(await of('ACME'), ['cased']);
    same(await of('acme '), ['spaced']);
    same(await of('null'), ['texts']);
    same(await of(undefined), ['none-1', 'none-2']);
    same(await of('undefined'), []);
    same(await of('%'), []);
    const acme = await store.subscribed(EVENT, 'acme');
    const second = acme.find(({ id }) => id === 'acme-2');
    same(second?.events, ['order.*', 'refund.**'], 'every pattern must be returned');
  },

  'returns every endpoint with a pattern that matches an event': async (holding) => {
    const patterns = {
      exact: ['order.created'],
      'one segment': ['order.*'],
      'any number': ['order.**'],
      'none more': ['order.created.**'],
      first: ['*.created'],
      last: ['**.created'],
      all: ['**'],
      'second pattern': ['refund.paid', 'order.created'],
      mixed: ['order.**.created'],
    };
    const store = await holding(
      ...Object.entries(patterns).map(([id, events]) => endpointNamed(id, { events })),
      ...Object.entries(patterns).map(([id, events]) =>
        endpointNamed(`${id} of acme`, { events, tenant: 'acme' }),
      ),
    );

    const found = new Set(idsOf(await store.subscribed(EVENT, undefined)));
    const missing = Object.keys(patterns).filter((id) => !found.has(id));
    same(missing, []);
    assert.ok(![...found].some((id) => id.endsWith('of acme')), 'not those of a tenant');
    same((await store.subscribed(EVENT, 'acme')).length, Object.keys(patterns).length);
  },

  'counts the endpoints of a tenant, disabled ones included': async (holding) => {
    const store = await holding(
      endpointNamed('a', { tenant: 'acme' }),
      endpointNamed('b', { tenant: 'acme', disabled: { at: AT, reason: 'gone' } }),
      endpointNamed('c', { tenant: 'ACME' }),
      endpointNamed('d'),
    );

    assert.equal(await store.count('acme'), 2);
    assert.equal(await store.count('other'), 0);
  },

  'lists the endpoints of a tenant, those without a tenant, and all': async (holding) => {
    const store = await holding(
      endpointNamed('c', { tenant: 'acme' }),
      endpointNamed('a'),
      endpointNamed('d', { tenant: 'other' }),
      endpointNamed('b', { tenant: 'acme' }),
    );

    same(idsOf(await store.list({ limit: 10 })), ['a', 'b', 'c', 'd']);
    same(idsOf(await store.list({ tenant: undefined, limit: 10 })).length, 4);
    same(idsOf(await store.list({ tenant: 'acme', limit: 10 })), ['b', 'c']);
    same(idsOf(await store.list({ tenant: null, limit: 10 })), ['a']);
    same(idsOf(await store.list({ tenant: 'nobody', limit: 10 })), []);
    same(idsOf(await store.list({ tenant: 'acme', after: 'b', limit: 10 })), ['c']);
  },

  'lists pages in the order of code units': async (holding) => {
    const store = await holding(...ODD_IDS.toReversed().map((id) => endpointNamed(id)));

    for (const limit of [1, 2, 7, 100]) {
      const pages = await pagesOf(store, { limit });
      same(pages.flat(), ODD_IDS, `pages of ${limit}`);
      assert.ok(
        pages.every((page) => page.length <= limit),
        'a page must not exceed its limit',
      );
    }
    const behind = idsOf(await store.list({ after: 'Zz', limit: 100 }));
    same(behind, ODD_IDS.slice(ODD_IDS.indexOf('_')), 'after may be an id that does not exist');
  },

  'distinguishes ids of any script': async (holding) => {
    const store = await holding(
      ...ODD_IDS.map((id) => endpointNamed(id, { tenant: `tenant ${id}` })),
    );

    for (const id of ODD_IDS) {
      assert.equal((await store.find(id))?.id, id);
      same(idsOf(await store.subscribed(EVENT, `tenant ${id}`)), [id]);
    }
  },

  [`stores ${MANY} endpoints`]: async (holding) => {
    const endpoints = Array.from({ length: MANY }, (_, index) =>
      endpointNamed(`endpoint-${String(index).padStart(4, '0')}`, { tenant: 'many' }),
    );
    const store = await holding(...endpoints);

    assert.equal((await store.subscribed(EVENT, 'many')).length, MANY);
    same((await pagesOf(store, { limit: 300 })).flat(), idsOf(endpoints));
  },

  'is unaffected by changes to a returned endpoint': async (holding) => {
    const store = await holding(endpointNamed('a', { tenant: 't' }));
    const expected = core(await store.find('a'));
    const handed = [
      await store.find('a'),
      ...(await store.subscribed(EVENT, 't')),
      ...(await store.list({ limit: 1 })),
    ];

    for (const endpoint of handed) mutate(endpoint);

    assert.equal(handed.length, 3);
    same(core(await store.find('a')), expected);
    same((await store.subscribed(EVENT, 't')).map(core), [expected]);
    same((await store.list({ limit: 1 })).map(core), [expected]);
  },
};

const WRITING: Cases = {
  'returns an endpoint unchanged': async (holding) => {
    const full = fullEndpoint('full');
    const bare = endpointNamed('bare');
    const store = await holding(full, bare);

    for (const endpoint of [full, bare]) {
      const { id, tenant } = endpoint;
      same(await store.find(id), endpoint);
      same(await store.list({ tenant: tenant ?? null, limit: 2 }), [endpoint]);
    }
    same(await store.subscribed(EVENT, undefined), [bare]);
  },

  'is unaffected by later changes to an inserted endpoint': async (holding) => {
    const endpoint = fullEndpoint('a');
    const given = plain(endpoint) as StoredEndpoint;
    const store = await holding(given);
    mutate(given);
    same(await store.find('a'), endpoint, 'insert');

    const changed = { ...(plain(endpoint) as StoredEndpoint), version: 2 };
    await store.replace(changed);
    mutate(changed);
    same(await store.find('a'), { ...endpoint, version: 2 }, 'replace');
  },

  'accepts an id once': async (holding) => {
    const store = await holding(endpointNamed('a', { tenant: 'first' }));

    assert.equal(await store.insert(endpointNamed('a', { tenant: 'second' })), false);
    assert.equal(await store.insert(endpointNamed('a')), false);
    same(await store.find('a'), endpointNamed('a', { tenant: 'first' }));
    same(await store.subscribed(EVENT, 'second'), []);
  },

  [`accepts an id once in ${CONCURRENT} concurrent inserts`]: async (holding) => {
    const store = await holding();
    const attempts = Array.from({ length: CONCURRENT }, async (_, index) => {
      const taken = await store.insert(endpointNamed('contested', { tenant: `t${index}` }));
      return taken ? `t${index}` : undefined;
    });

    const winners = (await Promise.all(attempts)).filter((tenant) => tenant !== undefined);

    assert.equal(winners.length, 1, 'exactly one insert must succeed');
    assert.equal((await store.find('contested'))?.tenant, winners[0]);
    assert.equal((await store.list({ limit: CONCURRENT })).length, 1);
  },

  'replaces only the previous version': async (holding) => {
    const store = await holding(endpointNamed('a'));
    const version = (number: number): StoredEndpoint =>
      endpointNamed('a', { version: number, description: `version ${number}`, updatedAt: AT + 1 });

    assert.equal(
      await store.replace(version(1)),
      false,
      'the stored version must not replace itself',
    );
    assert.equal(await store.replace(version(3)), false, 'a version must not be skipped');
    same(await store.find('a'), endpointNamed('a'));
    assert.equal(await store.replace(version(2)), true);
    assert.equal(await store.replace(version(2)), false, 'a version must be written once');
    assert.equal(await store.replace(version(3)), true);
    same(await store.find('a'), version(3));
  },

  'does not replace another endpoint under the same id': async (holding) => {
    const store = await holding(endpointNamed('a'));
    await store.remove('a');
    const recreated = endpointNamed('a', { createdAt: AT + 5 });
    await store.insert(recreated);

    assert.equal(
      await store.replace(endpointNamed('a', { version: 2 })),
      false,
      'the endpoint was deleted and created again, which "createdAt" shows',
    );
    same(await store.find('a'), recreated);
  },

  'does not replace an endpoint that does not exist': async (holding) => {
    const store = await holding(endpointNamed('other'));

    assert.equal(await store.replace(endpointNamed('a', { version: 2 })), false);
    assert.equal(await store.replace(endpointNamed('a', { version: 1 })), false);
    assert.equal(await store.find('a'), undefined);
    same(idsOf(await store.list({ limit: 2 })), ['other']);
  },

  [`accepts one of ${CONCURRENT} concurrent changes of a version`]: async (holding) => {
    const store = await holding(endpointNamed('a'));
    const attempts = Array.from({ length: CONCURRENT }, async (_, index) => {
      const description = `change ${index}`;
      const done = await store.replace(endpointNamed('a', { version: 2, description }));
      return done ? description : undefined;
    });

    const winners = (await Promise.all(attempts)).filter((text) => text !== undefined);

    assert.equal(winners.length, 1, 'exactly one change must succeed');
    assert.equal((await store.find('a'))?.description, winners[0]);
  },

  'loses no change of concurrent writers that retry': async (holding) => {
    const store = await holding(endpointNamed('a'));
    const writers = Array.from({ length: 10 }, async (_, index) => {
      for (let tries = 0; tries < 100; tries++) {
        const kept = (await store.find('a'))!;
        const metadata = { ...kept.metadata, [`writer ${index}`]: 'was here' };
        if (await store.replace({ ...kept, metadata, version: kept.version + 1 })) return;
      }
      assert.fail('a writer that retries from the stored version must succeed');
    });
    await Promise.all(writers);

    const kept = await store.find('a');
    assert.equal(kept?.version, 11);
    assert.equal(Object.keys(kept.metadata ?? {}).length, 10);
  },

  'replaces every member of an endpoint': async (holding) => {
    const store = await holding(fullEndpoint('a'));
    const bare = endpointNamed('a', { tenant: 'full', version: 2 });

    assert.equal(await store.replace(bare), true);
    same(await store.find('a'), bare, 'members that the new version leaves out must be removed');
    same(await store.subscribed(EVENT, 'full'), [bare]);
  },

  'does not return a disabled endpoint for events until it is enabled': async (holding) => {
    const store = await holding(
      endpointNamed('on', { tenant: 't' }),
      endpointNamed('off', { tenant: 't', disabled: { at: AT, reason: 'gone' } }),
    );
    same(idsOf(await store.subscribed(EVENT, 't')), ['on']);
    same(idsOf(await store.list({ tenant: 't', limit: 3 })), ['off', 'on']);

    await store.replace(endpointNamed('off', { tenant: 't', version: 2, enabledAt: AT + 1 }));
    await store.replace(
      endpointNamed('on', { tenant: 't', version: 2, disabled: { at: AT, reason: 'requested' } }),
    );
    same(idsOf(await store.subscribed(EVENT, 't')), ['off']);
  },

  'returns an endpoint for the events of its last version': async (holding) => {
    const store = await holding(endpointNamed('a', { events: ['refund.paid'] }));
    await store.replace(endpointNamed('a', { events: ['order.created'], version: 2 }));

    same(idsOf(await store.subscribed(EVENT, undefined)), ['a']);
  },

  'returns a paused endpoint for events': async (holding) => {
    const store = await holding(endpointNamed('a'));
    const paused = endpointNamed('a', { version: 2, pausedAt: AT + 1 });
    await store.replace(paused);
    same(await store.subscribed(EVENT, undefined), [paused]);

    await store.replace(endpointNamed('a', { version: 3 }));
    same(await store.find('a'), endpointNamed('a', { version: 3 }));
  },

  'removes an endpoint once, and accepts its id again': async (holding) => {
    const store = await holding(
      endpointNamed('a', { tenant: 'old', version: 7 }),
      endpointNamed('b', { tenant: 'old' }),
    );

    assert.equal(await store.remove('a'), true);
    assert.equal(await store.remove('a'), false);
    assert.equal(await store.find('a'), undefined);
    same(idsOf(await store.subscribed(EVENT, 'old')), ['b']);
    same(idsOf(await store.list({ limit: 3 })), ['b']);
    const late = endpointNamed('a', { version: 8 });
    assert.equal(await store.replace(late), false, 'a late change must not restore it');
    assert.equal(await store.insert(endpointNamed('a', { tenant: 'new' })), true);
    const old = idsOf(await store.subscribed(EVENT, 'old'));
    same(old, ['b'], 'the former tenant must not receive its events');
    same(idsOf(await store.subscribed(EVENT, 'new')), ['a']);
  },

  'reads its own writes immediately': async (holding) => {
    const store = await holding();
    for (let round = 0; round < 20; round++) {
      const id = `endpoint ${round}`;
      await store.insert(endpointNamed(id, { tenant: 't' }));
      assert.equal((await store.subscribed(EVENT, 't')).length, 1);
      await store.replace(endpointNamed(id, { tenant: 't', version: 2, description: 'changed' }));
      assert.equal((await store.subscribed(EVENT, 't'))[0]?.description, 'changed');
      await store.remove(id);
      same(await store.subscribed(EVENT, 't'), []);
    }
  },
};

function endpointNamed(id: string, change: Partial<StoredEndpoint> = {}): StoredEndpoint {
  return {
    id,
    url: `https://receiver.example/${encodeURIComponent(id)}`,
    events: ['**'],
    settings: {},
    keys: [],
    version: 1,
    createdAt: AT,
    updatedAt: AT,
    ...change,
  };
}

function fullEndpoint(id: string): StoredEndpoint {
  return endpointNamed(id, {
    tenant: 'full',
    events: ['order.created', 'refund.**', 'ünïcode.*'],
    description: 'Line one.\nLine two: "quoted", \\escaped\\, 😀, null\u2028end',
    metadata: { plan: 'gold', '': '', 'a.b': 'c', 'ä"\\': "'; --", constructor: 'x' },
    settings: {
      method: 'POST',
      profile: 'webhook-token',
      hash: 'sha256',
      jti: 'delivery',
      timeout: 2_500.5,
      headers: { 'X-Shop': 'a', 'x-empty': '' },
      audience: ['https://a.example', 'https://b.example'],
      subject: 'orders',
      filter: { $or: [{ data: { 'a "b"': { $gte: 0.1 } } }, { data: { note: null } }] },
    },
    keys: [
      { kid: 'first', sealed: `v1.${'A'.repeat(500)}.key/1`, notBefore: AT },
      { kid: 'second', sealed: 'v1.Bg==.schlüssel', notBefore: AT + 86_400_000 },
    ],
    credentials: { kinds: ['certificate', 'oauth2'], sealed: 'v1.Bg==.schlüssel' },
    disabled: { at: AT + 5, reason: 'failing' },
    enabledAt: AT + 3,
    updatedAt: AT + 5,
  });
}

const ACTIVITY: Cases = {
  'records activity once under an id': async (holding) => {
    const { activity } = await holding();
    const entries = Array.from({ length: 10 }, (_, index) => entryOf('same', { at: AT + index }));
    const recorded = await Promise.all(entries.map((entry) => activity.record(entry)));

    same(recorded.filter(Boolean).length, 1, 'exactly one of several records must succeed');
    same(idsOf(await activity.list({}, { limit: 10 })), ['same']);
  },

  'returns activity as it was recorded, and replaces the previous version only': async (
    holding,
  ) => {
    const { activity } = await holding();
    const entry = entryOf('a', {
      tenant: 'Größe',
      target: "'; DROP TABLE activity; --",
      details: { actor: 'a\u0000b 😀', job: { sent: 1 } },
    });
    await activity.record(entry);
    same(await activity.list({}, { limit: 10 }), [entry]);
    const next = { ...entry, details: { job: { sent: 2 } }, version: 2 };
    const replaced = [await activity.replace(next), await activity.replace(next)];

    same(replaced, [true, false]);
    same(await activity.replace({ ...next, id: 'b' }), false, 'an unknown id must be refused');
    same(await activity.list({}, { limit: 10 }), [next]);
  },

  'lists activity by tenant, action and target, newest first, page by page': async (holding) => {
    const { activity } = await holding();
    for (const [id, at, tenant, action, target] of [
      ['a', 3, 't', 'x', 'e1'],
      ['b', 3, 't', 'y', 'e2'],
      ['c', 1, 'u', 'x', 'e1'],
      ['d', 2, undefined, 'x', undefined],
    ] as const) {
      await activity.record({
        ...entryOf(id, { action, at: AT + at }),
        ...(tenant !== undefined && { tenant }),
        ...(target !== undefined && { target }),
      });
    }
    const page = async (
      ...[filter, request]: Parameters<typeof activity.list>
    ): Promise<string[]> => idsOf(await activity.list(filter, request));

    same(await page({}, { limit: 10 }), ['b', 'a', 'd', 'c']);
    same(await page({}, { limit: 2, after: { at: AT + 3, id: 'b' } }), ['a', 'd']);
    same(await page({ tenant: 't' }, { limit: 10 }), ['b', 'a']);
    same(await page({ action: 'x' }, { limit: 10 }), ['a', 'd', 'c']);
    same(await page({ action: 'x', target: 'e1', tenant: 'u' }, { limit: 10 }), ['c']);
  },

  'prunes old activity': async (holding) => {
    const { activity } = await holding();
    for (const at of [1, 2, 3]) await activity.record(entryOf(`${at}`, { at: AT + at }));

    same(await activity.prune(AT + 3), 2);
    same(idsOf(await activity.list({}, { limit: 10 })), ['3']);
  },
};

function entryOf(id: string, members: Partial<StoredActivity>): StoredActivity {
  const entry = { id, at: AT, by: 'operator', action: 'endpoint.update', details: {}, version: 1 };
  return { ...entry, ...members } as StoredActivity;
}

/** The members that events depend on. */
function core(endpoint: StoredEndpoint | undefined): object {
  assert.ok(endpoint !== undefined, 'the endpoint must be found');
  const { id, tenant, url, events, disabled } = endpoint;
  return { id, tenant, url, events: [...events], disabled };
}

/** Mutates everything that is not frozen. */
function mutate(value: unknown): void {
  if (typeof value !== 'object' || value === null) return;
  for (const [name, member] of Object.entries(value)) {
    mutate(member);
    Reflect.set(value, name, 'mutated');
  }
  Reflect.set(value, Array.isArray(value) ? value.length : 'added', 'mutated');
}

async function pagesOf(store: EndpointStore, request: EndpointPageRequest): Promise<string[][]> {
  const pages: string[][] = [];
  for (let after = request.after; pages.length <= MANY; after = pages.at(-1)!.at(-1)) {
    const page = idsOf(await store.list({ ...request, after }));
    if (page.length === 0) return pages;
    pages.push(page);
  }
  return assert.fail('the list of pages must end');
}

/** Compares values as JSON: a store may create them in another realm, or keep members that are undefined. */
function same(actual: unknown, expected: unknown, message?: string): void {
  assert.deepEqual(plain(actual), plain(expected), message);
}

function plain(value: unknown): unknown {
  return value === undefined ? undefined : JSON.parse(JSON.stringify(value));
}

function idsOf(endpoints: readonly { readonly id: string }[]): string[] {
  return endpoints.map(({ id }) => id);
}
