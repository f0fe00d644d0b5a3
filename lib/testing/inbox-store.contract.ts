import assert from 'node:assert/strict';
import type { InboxBounds, InboxEntry, InboxFilter, InboxStore } from '../inbox/inbox-store.js';
import type { ContractCase } from './contract-case.interface.js';

/** How the contract creates stores to test. */
export interface InboxStoreContractOptions {
  /** Creates an empty store with these bounds. */
  readonly create: (bounds: InboxBounds) => InboxStore | Promise<InboxStore>;
}

const AT = Date.UTC(2026, 0, 1);
const ALL = { limit: 1_000 };

/** The contract of {@link InboxStore}, as cases for any test framework. */
export function inboxStoreContract({ create }: InboxStoreContractOptions): ContractCase[] {
  return Object.entries(CASES).map(([name, check]) => ({ name, run: () => check(create) }));
}

type Create = InboxStoreContractOptions['create'];

const CASES: Readonly<Record<string, (create: Create) => Promise<void>>> = {
  'returns an entry with everything that was recorded': async (create) => {
    const store = await create({});
    const bytes = Buffer.from([0, 1, 0x7f, 0x80, 0xff]);
    const full: Required<InboxEntry> = {
      id: 'full',
      at: AT,
      outcome: 'queued',
      status: 202,
      code: 'some_code',
      detail: 'a "detail" with ünïcode \u0000 and \ud800',
      receiver: 'billing',
      method: 'POST',
      path: '/hooks/%00',
      size: 5,
      authenticated: true,
      event: 'order.created',
      eventId: 'evt_1',
      issuer: 'https://shop.example',
      kid: 'k1',
      deliveryId: 'delivery-1',
      runs: 0,
      headers: [
        ['X-Test', 'a'],
        ['x-test', 'b'],
      ],
      payload: { contentType: 'application/octet-stream', bytes },
      explanation: { verdict: 'refused', steps: [] },
    };
    await store.record([full, entry('bare')]);

    const { payload, ...found } = (await store.find('full'))!;
    const { payload: _payload, ...expected } = full;
    assert.deepEqual(found, expected);
    assert.equal(payload?.contentType, 'application/octet-stream');
    assert.deepEqual(Buffer.from(payload.bytes), bytes, 'the payload must be the same bytes');
    assert.deepEqual(await store.find('bare'), entry('bare'), 'absent members must stay absent');
    assert.equal(await store.find('FULL'), undefined, 'ids must be compared exactly');
    assert.equal(await store.find('missing'), undefined);
  },

  'lists entries newest first, page by page': async (create) => {
    const store = await create({});
    const ids = Array.from({ length: 25 }, (_, i) => `id${String(i).padStart(2, '0')}`);
    const mixed = ids.map((id, i) => entry(id, { outcome: i % 3 === 0 ? 'refused' : 'handled' }));
    await store.record(mixed.slice(10));
    await store.record(mixed.slice(0, 10));

    const found: string[] = [];
    for (let after: string | undefined; ; after = found.at(-1)) {
      const page = await store.list({}, { after, limit: 10 });
      found.push(...page.map(({ id }) => id));
      if (page.length < 10) break;
    }
    assert.deepEqual(found, ids.toReversed());
  },

  'deletes entries of every kind that are older than it keeps them': async (create) => {
    const store = await create({ keep: '1h' });
    const outcomes = ['handled', 'refused', 'duplicate'] as const;
    const made = (id: string, at: number) =>
      outcomes.map((outcome) => entry(`${id}-${outcome}`, { at, outcome }));
    // As if the clock was set back in between.
    await store.record([...made('2', AT + 1), ...made('1', AT)]);
    await store.deleteExpired(AT + 3_600_000 - 1);
    const before = await store.list({}, ALL);
    await store.deleteExpired(AT + 3_600_000);

    assert.equal(before.length, 6);
    const ids = outcomes.map((outcome) => `2-${outcome}`);
    assert.deepEqual((await idsIn(store)).sort(), ids.sort());
    assert.equal(await store.find('1-handled'), undefined);
    assert.deepEqual(await store.counts(), { accepted: 2, refused: 1 });
  },

  'keeps entries of any age without a limit': async (create) => {
    const store = await create({});
    await store.record([entry('old', { at: AT })]);
    await store.deleteExpired(AT + 10 * 365 * 86_400_000);

    assert.deepEqual(await store.find('old'), entry('old', { at: AT }));
  },

  'leaves headers, payload and explanation out of a list': async (create) => {
    const store = await create({});
    const payload = { contentType: 'text/plain', bytes: Buffer.from('secret') };
    await store.record([entry('a', { headers: [['a', 'b']], payload, explanation: {} })]);

    assert.deepEqual(await store.list({}, ALL), [entry('a')]);
  },

  'stores an entry once': async (create) => {
    const store = await create({});
    await store.record([entry('a')]);
    await store.record([entry('a', { status: 500 }), entry('b')]);

    assert.deepEqual(await store.find('a'), entry('a'));
    assert.deepEqual(await store.counts(), { accepted: 2, refused: 0 });
  },

  'filters by every member': async (create) => {
    const store = await create({});
    await store.record([
      entry('a', { at: AT, receiver: 'r1', event: 'order.created', eventId: 'e1', issuer: 'i1' }),
      entry('b', { at: AT + 10, outcome: 'failed', status: 500, code: 'handler_failed' }),
      entry('c', { at: AT + 20, outcome: 'refused', code: 'bad_signature', issuer: 'i1' }),
      entry('d', { at: AT + 30, outcome: 'duplicate', receiver: 'r1', event: 'order' }),
    ]);
    const idsOf = async (filter: InboxFilter): Promise<string> =>
      (await idsIn(store, filter)).join('');

    assert.equal(await idsOf({}), 'dcba');
    assert.equal(await idsOf({ outcome: 'duplicate' }), 'd');
    assert.equal(await idsOf({ kind: 'refused' }), 'c');
    assert.equal(await idsOf({ kind: 'accepted' }), 'dba');
    assert.equal(await idsOf({ receiver: 'r1' }), 'da');
    assert.equal(await idsOf({ code: 'bad_signature' }), 'c');
    assert.equal(await idsOf({ event: 'order' }), 'd', 'names must be compared exactly');
    assert.equal(await idsOf({ eventId: 'e1' }), 'a');
    assert.equal(await idsOf({ issuer: 'i1' }), 'ca');
    assert.equal(await idsOf({ since: AT + 10 }), 'dcb', 'since is inclusive');
    assert.equal(await idsOf({ until: AT + 10 }), 'a', 'until is exclusive');
    assert.equal(await idsOf({ receiver: 'r1', since: AT + 1, until: AT + 31 }), 'd');
    assert.equal(await idsOf({ receiver: undefined, event: "' OR 1=1 --" }), '');
  },

  'erases the entries of every kind that match': async (create) => {
    const store = await create({});
    const outcomes = ['queued', 'refused', 'duplicate'] as const;
    const made = (eventId: string, issuer: string) =>
      outcomes.map((outcome) =>
        entry(`${eventId}-${issuer}-${outcome}`, {
          outcome,
          eventId,
          issuer,
          ...(outcome === 'queued' && { deliveryId: eventId }),
        }),
      );
    await store.record([...made('e1', 'i1'), ...made('e1', 'i2'), ...made('e2', 'i1')]);

    assert.equal(await store.erase({ eventId: 'e1', issuer: 'i1' }), 3);
    assert.equal(await store.erase({ eventId: 'e1', issuer: 'i1' }), 0);
    assert.equal(await store.erase({ issuer: "' OR 1=1 --" }), 0);
    assert.equal(await store.find('e1-i1-queued'), undefined);
    await store.settle([{ deliveryId: 'e2', outcome: 'handled', runs: 1 }]);
    await store.record([entry('e1-i1-queued')]);
    const ids = (await store.list({}, ALL)).map(({ id, outcome }) => `${id} ${outcome}`);
    assert.deepEqual(ids, [
      'e2-i1-refused refused',
      'e2-i1-queued handled',
      'e2-i1-duplicate duplicate',
      'e1-i2-refused refused',
      'e1-i2-queued queued',
      'e1-i2-duplicate duplicate',
      'e1-i1-queued handled',
    ]);
  },

  'erases what matches each member of a filter, and nothing else': async (create) => {
    const store = await create({});
    const filters: Readonly<Record<string, InboxFilter>> = {
      outcome: { outcome: 'failed' },
      kind: { kind: 'refused' },
      code: { code: 'some_code' },
      receiver: { receiver: 'billing' },
      event: { event: 'order.paid' },
      eventId: { eventId: 'e1' },
      issuer: { issuer: 'https://shop.example' },
      since: { since: AT + 10 },
      until: { until: AT },
    };
    const members: Readonly<Record<string, Partial<InboxEntry>>> = {
      ...filters,
      kind: { outcome: 'refused' },
      since: { at: AT + 10 },
      until: { at: AT - 1 },
      none: {},
    };
    await store.record(Object.entries(members).map(([id, one]) => entry(id, one)));
    let left = await idsIn(store);

    for (const [id, filter] of Object.entries(filters)) {
      assert.equal(await store.erase(filter), 1, `erase by ${id}`);
      left = left.filter((other) => other !== id);
      assert.deepEqual(await idsIn(store), left, `erase by ${id}`);
    }
    assert.deepEqual(left, ['none']);
  },

  'settles the newest entry of a queued event, and no other': async (create) => {
    const store = await create({});
    await store.record([
      entry('a', { outcome: 'queued', deliveryId: 'd1' }),
      entry('b', { outcome: 'queued', deliveryId: 'd1' }),
      entry('c', { outcome: 'queued', deliveryId: 'd2' }),
    ]);
    await store.settle([
      { deliveryId: 'd1', outcome: 'queued', runs: 1 },
      { deliveryId: 'unknown', outcome: 'dead', runs: 1 },
      { deliveryId: 'd1', outcome: 'dead', runs: 2 },
    ]);

    const states = await statesIn(store);
    assert.deepEqual(states, ['c queued undefined', 'b dead 2', 'a queued undefined']);
  },

  'returns the settlements without an entry, if it returns any': async (create) => {
    const store = await create({});
    await store.record([entry('a', { outcome: 'queued', deliveryId: 'd1' })]);
    const unmatched = await store.settle([
      { deliveryId: 'd2', outcome: 'queued', runs: 1 },
      { deliveryId: 'd1', outcome: 'handled', runs: 1 },
      { deliveryId: 'd2', outcome: 'handled', runs: 2 },
    ]);
    if (unmatched === undefined) return;

    assert.deepEqual([...unmatched], ['d2']);
    assert.deepEqual(await store.settle([{ deliveryId: 'd1', outcome: 'dead', runs: 2 }]), []);
    assert.deepEqual(await store.settle([]), []);
  },

  'ignores a repeated settlement if a later run was settled': async (create) => {
    const store = await create({});
    await store.record([
      entry('a', { outcome: 'queued', deliveryId: 'd1' }),
      entry('b', { outcome: 'queued', deliveryId: 'd2' }),
      entry('c', { outcome: 'queued', deliveryId: 'd3' }),
    ]);
    const isRepeated = (await store.settle([])) !== undefined;
    if (!isRepeated) return;
    await store.settle([
      { deliveryId: 'd1', outcome: 'handled', runs: 2 },
      { deliveryId: 'd2', outcome: 'queued', runs: 1 },
    ]);
    const unmatched = await store.settle([
      { deliveryId: 'd1', outcome: 'queued', runs: 1, isRepeated },
      { deliveryId: 'd2', outcome: 'dead', runs: 2, isRepeated },
      { deliveryId: 'd3', outcome: 'queued', runs: 0, isRepeated },
      { deliveryId: 'd4', outcome: 'queued', runs: 1, isRepeated },
    ]);

    assert.deepEqual(unmatched, ['d4']);
    assert.deepEqual(await statesIn(store), ['c queued 0', 'b dead 2', 'a handled 2']);
    await store.settle([{ deliveryId: 'd2', outcome: 'queued', runs: 0 }]);
    assert.equal((await store.find('b'))?.outcome, 'queued', 'a retried dead letter starts again');
  },

  'does not undo the outcome of a retried event': async (create) => {
    const store = await create({});
    await store.record([
      entry('a', { outcome: 'queued', deliveryId: 'd1' }),
      entry('b', { outcome: 'queued', deliveryId: 'd2' }),
    ]);
    await store.settle([
      { deliveryId: 'd1', outcome: 'dead', runs: 3 },
      { deliveryId: 'd2', outcome: 'dead', runs: 3 },
    ]);
    await store.settle([{ deliveryId: 'd1', outcome: 'handled', runs: 1 }]);
    await store.settle([
      { deliveryId: 'd1', outcome: 'queued', runs: 0 },
      { deliveryId: 'd2', outcome: 'queued', runs: 0 },
    ]);

    assert.deepEqual(await statesIn(store), ['b queued 0', 'a handled 1']);
    await store.settle([
      { deliveryId: 'd2', outcome: 'handled', runs: 1 },
      { deliveryId: 'd2', outcome: 'queued', runs: 0 },
    ]);
    assert.equal((await store.find('b'))?.outcome, 'handled', 'also in one call');
  },

  'keeps the newest entries up to its bounds': async (create) => {
    const store = await create({ maxAccepted: 5, maxRefused: 2 });
    for (let i = 10; i < 30; i++) await store.record([entry(`a${i}`)]);

    const ids = await idsIn(store);
    assert.deepEqual(ids, ['a29', 'a28', 'a27', 'a26', 'a25']);
    assert.equal(await store.find('a24'), undefined);
  },

  'never drops an accepted request for refused ones': async (create) => {
    const store = await create({ maxAccepted: 3, maxRefused: 4 });
    await store.record([entry('a1'), entry('a2', { outcome: 'dead' }), entry('a3')]);
    const refused = Array.from({ length: 50 }, (_, i) =>
      entry(`r${i + 10}`, { outcome: 'refused' }),
    );
    await store.record(refused);

    assert.deepEqual(await store.counts(), { accepted: 3, refused: 4 });
    assert.deepEqual(await idsIn(store, { kind: 'refused' }), ['r59', 'r58', 'r57', 'r56']);
  },

  'never drops another request for duplicates, which have a tenth of its bound': async (create) => {
    const store = await create({ maxAccepted: 20, maxRefused: 5 });
    const outcomes = ['handled', 'queued', 'failed'] as const;
    const others = outcomes.map((outcome, i) => entry(`a${i}`, { outcome }));
    await store.record(others);
    for (let i = 10; i < 60; i++) await store.record([entry(`d${i}`, { outcome: 'duplicate' })]);

    const ids = await idsIn(store);
    assert.deepEqual(ids, ['d59', 'd58', 'a2', 'a1', 'a0']);
    assert.deepEqual(await store.counts(), { accepted: 5, refused: 0 });
  },

  'does not change with what it returns': async (create) => {
    const store = await create({});
    await store.record([entry('a')]);
    const [listed] = await store.list({}, ALL);
    (listed as { status: number }).status = 1;
    ((await store.find('a')) as { status: number }).status = 2;

    assert.equal((await store.find('a'))?.status, 204);
  },
};

function entry(id: string, members: Partial<InboxEntry> = {}): InboxEntry {
  return {
    id,
    at: AT,
    outcome: 'handled',
    status: 204,
    method: 'POST',
    path: '/webhooks',
    authenticated: true,
    ...members,
  };
}

async function idsIn(store: InboxStore, filter: InboxFilter = {}): Promise<string[]> {
  return (await store.list(filter, ALL)).map(({ id }) => id);
}

/** The outcome and the runs of each entry, newest first. */
async function statesIn(store: InboxStore): Promise<string[]> {
  const entries = await store.list({}, ALL);
  return entries.map(({ id, outcome, runs }) => `${id} ${outcome} ${runs}`);
}
