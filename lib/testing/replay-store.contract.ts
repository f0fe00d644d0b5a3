import assert from 'node:assert/strict';
import { randomBytes } from 'node:crypto';
import { DAY } from '../clock/duration.js';
import { SystemClock, type WebhookClock } from '../clock/webhook-clock.js';
import type {
  ReplayClaim,
  ReplayReservation,
  ReplayStore,
  ReplayVerdict,
} from '../replay/replay-store.js';
import type { ContractCase } from './contract-case.interface.js';
import { TestClock } from './test-clock.js';

/** How the contract gets at a store, and at its time. */
export interface ReplayStoreContractOptions {
  /** Makes a store for one case. It may be shared with other cases: keys are never used twice. */
  readonly create: (clock: WebhookClock) => ReplayStore | Promise<ReplayStore>;
  /**
   * Lets milliseconds pass, for a store whose time is a server's: usually a real wait, of two seconds at
   * most in one case, and longer on a machine that is too busy for that. Default: `create` gets a clock that is moved on by hand.
   */
  readonly advance?: ((ms: number) => Promise<void>) | undefined;
  /** Begins a transaction that the store can join, for a store with `commitWith`: without it, that is not checked. */
  readonly begin?: (() => Promise<ContractTransaction>) | undefined;
}

/** A transaction of the store's database. */
export interface ContractTransaction {
  /** What handlers pass to `event.commit(tx)`. */
  readonly tx: unknown;
  /** Commits it. */
  commit(): Promise<void>;
  /** Rolls it back. */
  rollback(): Promise<void>;
}

const LONG = 60_000;
/** A lease that is short enough to wait for, and the longest one for a busy machine. */
const SHORT = 1_000;
const LONGEST_SHORT = 8_000;
/** Share of a short lease that the calls of a case may take. */
const TIME_FOR_CALLS = 0.25;
/** Events that are handled at the same time. */
const AT_ONCE = 20;

/** The contract of {@link ReplayStore}, as cases for any test framework. */
export function replayStoreContract(
  options: ReplayStoreContractOptions | ReplayStoreContractOptions['create'],
): ContractCase[] {
  const { create, advance, begin } =
    typeof options === 'function' ? ({ create: options } as ReplayStoreContractOptions) : options;
  const cases = {
    ...CASES,
    ...(advance === undefined && LONG_CASES),
    ...(begin !== undefined && TRANSACTION_CASES),
  };
  return Object.entries(cases).map(([name, check]) => ({
    name,
    async run() {
      const testClock = new TestClock();
      const clock = advance === undefined ? testClock : new SystemClock();
      const wait = advance ?? ((ms: number) => testClock.advance(ms));
      const store = await create(clock);
      for (let short = SHORT; ; short *= 2) {
        const subject = new Subject(store, clock, wait, begin, short);
        try {
          return await check(subject);
        } catch (error) {
          // A lease can end before the call that it should outlast. That proves nothing, so a longer one is needed.
          const isLate = subject.timeOfCalls > short * TIME_FOR_CALLS;
          if (!isLate || short === LONGEST_SHORT) throw error;
        }
      }
    },
  }));
}

/** A store under test, with the words the cases are written in. */
class Subject {
  private readonly start: number;
  private waited = 0;

  constructor(
    readonly store: ReplayStore,
    readonly clock: WebhookClock,
    private readonly wait: (ms: number) => Promise<void>,
    readonly begin: ReplayStoreContractOptions['begin'],
    /** Milliseconds of a short lease. */
    readonly short: number,
  ) {
    this.start = clock.now();
  }

  /** Milliseconds since the start, except those that {@link advance} was to let pass. */
  get timeOfCalls(): number {
    return this.clock.now() - this.start - this.waited;
  }

  async advance(ms: number): Promise<void> {
    this.waited += ms;
    await this.wait(ms);
  }

  async commitWith(tx: unknown, reservation: ReplayReservation): Promise<boolean> {
    assert.ok(
      this.store.commitWith,
      'a store with begin in its contract options must have commitWith',
    );
    return this.store.commitWith(tx, reservation);
  }

  /** A claim on a new event, whose token is valid for one minute and which is kept for two. */
  claim(change: Partial<ReplayClaim> & { validFor?: number } = {}): ReplayClaim {
    const { validFor = LONG, ...fields } = change;
    const now = this.clock.now();
    const key = fields.key ?? digest();
    return {
      key,
      tokenKey: key,
      fingerprint: digest(),
      replayUntil: now + validFor,
      keepUntil: now + validFor + LONG,
      lease: LONG,
      issuer: 'https://issuer.example',
      ...fields,
    };
  }

  async reserve(claim: ReplayClaim): Promise<ReplayReservation> {
    const verdict = await this.store.reserve(claim);
    assert.equal(verdict.status, 'reserved', 'an event without a holder must be reserved');
    return verdict.reservation;
  }

  async handle(claim: ReplayClaim): Promise<void> {
    const reservation = await this.reserve(claim);
    assert.equal(
      await this.store.commit(reservation),
      true,
      'a reservation that is held must commit',
    );
  }

  async expect(claim: ReplayClaim, status: ReplayVerdict['status'], why: string): Promise<void> {
    assert.equal((await this.store.reserve(claim)).status, status, why);
  }

  /** Checks that a reservation no longer has any effect. */
  async expectFenced(reservation: ReplayReservation, why: string): Promise<void> {
    const { store } = this;
    assert.equal(await store.extend(reservation), false, `extend: ${why}`);
    assert.equal(await store.commit(reservation), false, `commit: ${why}`);
    assert.equal(await store.release(reservation), false, `release: ${why}`);
  }
}

const CASES: Readonly<Record<string, (subject: Subject) => Promise<void>>> = {
  'declares how many processes it protects': async ({ store }) => {
    assert.ok(['process', 'shared'].includes(store.scope), 'scope must be "process" or "shared"');
  },

  'reserves a new event, with an owner of its own': async (subject) => {
    const [first, second] = [subject.claim(), subject.claim()];
    const reservations = [await subject.reserve(first), await subject.reserve(second)];

    assert.deepEqual(reservations[0]!.claim, first);
    assert.ok(reservations[0]!.owner.length >= 16, 'an owner must be unguessable');
    assert.notEqual(reservations[0]!.owner, reservations[1]!.owner);
  },

  'reserves an event for one of 20 concurrent calls': async (subject) => {
    for (let round = 0; round < 5; round++) {
      const claim = subject.claim();
      const verdicts = await Promise.all(
        Array.from({ length: 20 }, async () => subject.store.reserve({ ...claim })),
      );

      assert.deepEqual(tally(verdicts), { reserved: 1, 'in-progress': 19 });
    }
  },

  'reserves a shared token for one of 20 concurrent events': async (subject) => {
    for (let round = 0; round < 5; round++) {
      const tokenKey = digest();
      const claims = Array.from({ length: 20 }, () => subject.claim({ tokenKey }));
      const verdicts = await Promise.all(claims.map(async (claim) => subject.store.reserve(claim)));

      assert.deepEqual(tally(verdicts), { reserved: 1, conflict: 19 });
    }
  },

  'returns when an event in progress can be tried again': async (subject) => {
    const claim = subject.claim();
    const before = subject.clock.now();
    await subject.reserve(claim);
    const reservedAt = subject.clock.now();
    const verdict = await subject.store.reserve(claim);

    assert.equal(verdict.status, 'in-progress');
    const { retryAt } = verdict;
    assert.ok(retryAt > before, 'retryAt must be in the future');
    assert.ok(
      retryAt <= reservedAt + claim.lease + SHORT,
      'retryAt must not be later than the end of the lease',
    );
  },

  'reports a committed event as done': async (subject) => {
    const claim = subject.claim();
    await subject.handle(claim);

    await subject.expect(claim, 'done', 'a committed event must be done');
    await subject.expect(claim, 'done', 'and stay so');
  },

  'keeps a commit whatever follows': async (subject) => {
    const claim = subject.claim();
    const reservation = await subject.reserve(claim);
    await subject.store.commit(reservation);

    await subject.expectFenced(reservation, 'a reservation ends with its commit');
    await subject.expect(claim, 'done', 'a committed event must stay done');
  },

  'accepts a copy of a reservation': async (subject) => {
    const claim = subject.claim();
    const reservation = await subject.reserve(claim);

    assert.equal(await subject.store.commit(structuredClone(reservation)), true);
    await subject.expect(claim, 'done', 'a committed event must be done');
  },

  'frees a released event and its token': async (subject) => {
    const claim = subject.claim({ tokenKey: digest() });
    const reservation = await subject.reserve(claim);
    assert.equal(await subject.store.release(reservation), true);

    await subject.expectFenced(reservation, 'a reservation ends with its release');
    const other = subject.claim({ tokenKey: claim.tokenKey });
    const second = await subject.reserve(other);
    assert.equal(await subject.store.release(second), true);
    await subject.expect(
      { ...claim, fingerprint: digest() },
      'reserved',
      'a released event must be free, also for other content',
    );
  },

  'knows an event by its key alone and by its key with a token as one': async (subject) => {
    for (const hasTokenFirst of [true, false]) {
      const alone = subject.claim();
      const both = [{ ...alone, tokenKey: digest() }, alone];
      const [first, second] = (hasTokenFirst ? both : both.toReversed()) as [
        ReplayClaim,
        ReplayClaim,
      ];
      const reservation = await subject.reserve(first);
      await subject.expect(second, 'in-progress', 'a copy of another form must wait');
      assert.equal(await subject.store.release(reservation), true);
      await subject.handle(second);
      await subject.expect(first, 'done', 'a copy of another form must be done');
      const changed = { ...first, fingerprint: digest() };
      await subject.expect(changed, 'conflict', 'other content must be a conflict in any form');
    }
  },

  'lets only the owner change a reservation': async (subject) => {
    const claim = subject.claim();
    const reservation = await subject.reserve(claim);

    await subject.expectFenced({ claim, owner: digest() }, 'another owner must not extend it');
    await subject.expectFenced({ claim, owner: '' }, 'an empty owner must not extend it');
    await subject.expect(claim, 'in-progress', 'another owner must not free the event');
    assert.equal(await subject.store.commit(reservation), true, 'the owner must still hold it');
  },

  'changes nothing for an unknown event': async (subject) => {
    await subject.expectFenced({ claim: subject.claim(), owner: digest() }, 'nothing was reserved');
  },

  'frees a reservation whose lease has ended, and fences its holder': async (subject) => {
    const claim = subject.claim({ lease: subject.short });
    const stale = await subject.reserve(claim);
    await subject.advance(subject.short + 50);
    await subject.expectFenced(stale, 'the lease has ended');
    const holder = await subject.reserve({ ...claim, lease: LONG });

    assert.notEqual(holder.owner, stale.owner);
    await subject.expectFenced(stale, 'the lease must belong to the new holder');
    await subject.expect(claim, 'in-progress', 'the stale holder must not free the event');
    assert.equal(await subject.store.commit(holder), true, 'the new holder must be able to commit');
    await subject.expectFenced(stale, 'the event is done');
    await subject.expect(claim, 'done', 'the stale holder must not undo the commit');
  },

  'also frees the token of a reservation whose lease has ended': async (subject) => {
    const claim = subject.claim({ lease: subject.short, tokenKey: digest() });
    await subject.reserve(claim);
    await subject.advance(subject.short + 50);

    await subject.expect(
      subject.claim({ tokenKey: claim.tokenKey, fingerprint: claim.fingerprint }),
      'reserved',
      'the token of an event that was not handled must be free',
    );
  },

  'holds an extended reservation beyond its first lease': async (subject) => {
    const claim = subject.claim({ lease: subject.short });
    const reservation = await subject.reserve(claim);
    await subject.advance(subject.short * 0.6);
    assert.equal(await subject.store.extend(reservation), true);
    await subject.advance(subject.short * 0.6);

    await subject.expect(claim, 'in-progress', 'an extended lease must hold');
    assert.equal(await subject.store.commit(reservation), true);
    await subject.expect(claim, 'done', 'a committed event must be done');
  },

  'commits an extended reservation whose token has expired, and keeps it': async (subject) => {
    const claim = subject.claim({ lease: subject.short, validFor: subject.short * 0.5 });
    const reservation = await subject.reserve(claim);
    await subject.advance(subject.short * 0.6);
    assert.equal(await subject.store.extend(reservation), true);
    await subject.advance(subject.short * 0.6);

    assert.equal(await subject.store.commit(reservation), true);
    await subject.expect(claim, 'done', 'it must be kept until keepUntil');
  },

  'remembers a handled event beyond the lease, and beyond the token': async (subject) => {
    const claim = subject.claim({ lease: subject.short * 0.5, validFor: subject.short * 1.5 });
    await subject.handle(claim);
    await subject.advance(subject.short);
    await subject.expect(claim, 'done', 'the end of the lease must not free a handled event');
    await subject.advance(subject.short);
    await subject.expect(claim, 'done', 'it must be kept until keepUntil');
  },

  'reports a known id with other content as a conflict, in progress and done': async (subject) => {
    const claim = subject.claim();
    const forged = { ...claim, fingerprint: digest() };
    const reservation = await subject.reserve(claim);

    await subject.expect(forged, 'conflict', 'the event is in progress with other content');
    await subject.store.commit(reservation);
    await subject.expect(forged, 'conflict', 'the event was handled with other content');
    await subject.expect(claim, 'done', 'a conflict must change nothing');
  },

  'reports a known token with another event as a conflict, in progress and done': async (
    subject,
  ) => {
    const claim = subject.claim({ tokenKey: digest() });
    const reused = subject.claim({ tokenKey: claim.tokenKey, fingerprint: claim.fingerprint });
    const reservation = await subject.reserve(claim);

    await subject.expect(reused, 'conflict', 'the token must be in use');
    await subject.store.commit(reservation);
    await subject.expect(reused, 'conflict', 'the token was used');
  },

  'reports the token of an event without an id as a conflict': async (subject) => {
    const plain = subject.claim();
    await subject.handle(plain);

    await subject.expect(
      subject.claim({ tokenKey: plain.key, fingerprint: plain.fingerprint }),
      'conflict',
      'the token was used without an event id',
    );
  },

  'reports an id that was the token of another event as a conflict': async (subject) => {
    const claim = subject.claim({ tokenKey: digest() });
    await subject.handle(claim);

    await subject.expect(
      subject.claim({ key: claim.tokenKey, fingerprint: claim.fingerprint }),
      'conflict',
      'the token was used with an event id',
    );
  },

  'reserves neither key if it reports a conflict': async (subject) => {
    const claim = subject.claim({ tokenKey: digest() });
    await subject.handle(claim);
    const reused = subject.claim({ tokenKey: claim.tokenKey });
    await subject.expect(reused, 'conflict', 'the token was used');
    const forged = { ...claim, tokenKey: digest(), fingerprint: digest() };
    await subject.expect(forged, 'conflict', 'the event was handled with other content');

    await subject.expect({ ...reused, tokenKey: digest() }, 'reserved', 'its event must be free');
    await subject.expect(
      subject.claim({ tokenKey: forged.tokenKey }),
      'reserved',
      'its token must be free',
    );
  },

  'recognises an event that is repeated with a new token': async (subject) => {
    const claim = subject.claim({ tokenKey: digest() });
    const reservation = await subject.reserve(claim);

    await subject.expect({ ...claim, tokenKey: digest() }, 'in-progress', 'it is being handled');
    await subject.store.commit(reservation);
    await subject.expect({ ...claim, tokenKey: digest() }, 'done', 'it was handled');
  },

  'remembers a handled event for as long as the token of a copy': async (subject) => {
    const now = subject.clock.now();
    const first = subject.claim({
      validFor: subject.short,
      keepUntil: now + subject.short,
      tokenKey: digest(),
    });
    await subject.handle(first);
    const copy = { ...first, tokenKey: digest(), replayUntil: now + LONG, keepUntil: now + LONG };
    await subject.expect(copy, 'done', 'a copy with a new token must be the same event');

    await subject.advance(subject.short + 50);
    await subject.expect(copy, 'done', 'the token of the copy is still valid');
  },

  'remembers an event for as long as the token of a copy that arrived while it was handled': async (
    subject,
  ) => {
    const now = subject.clock.now();
    const first = subject.claim({
      validFor: subject.short,
      keepUntil: now + subject.short,
      tokenKey: digest(),
    });
    const reservation = await subject.reserve(first);
    const copy = { ...first, tokenKey: digest(), replayUntil: now + LONG, keepUntil: now + LONG };
    await subject.expect(copy, 'in-progress', 'it is being handled');
    assert.equal(await subject.store.commit(reservation), true);

    await subject.advance(subject.short + 50);
    await subject.expect(copy, 'done', 'the token of the copy is still valid');
  },

  'keeps the times of an event if a copy has earlier ones': async (subject) => {
    const [handled, running] = [subject.claim(), subject.claim()];
    await subject.handle(handled);
    const reservation = await subject.reserve(running);
    const end = subject.clock.now() + subject.short;
    const early = { replayUntil: end, keepUntil: end };
    const copy = (claim: ReplayClaim) => ({ ...claim, tokenKey: digest(), ...early });
    await subject.expect(copy(handled), 'done', 'a copy with a new token must be the same event');
    await subject.expect(copy(running), 'in-progress', 'it is being handled');
    assert.equal(await subject.store.commit(reservation), true);

    await subject.advance(subject.short + 50);
    await subject.expect(handled, 'done', 'its own token is still valid');
    await subject.expect(running, 'done', 'its own token is still valid');
  },

  'keeps the times of an event after a conflict': async (subject) => {
    const [forged, reused] = [subject.claim(), subject.claim({ tokenKey: digest() })];
    await subject.handle(forged);
    await subject.handle(reused);
    const end = subject.clock.now() + subject.short;
    const early = { replayUntil: end, keepUntil: end, fingerprint: digest() };
    const { tokenKey } = reused;
    await subject.expect({ ...forged, ...early }, 'conflict', 'it was handled with other content');
    await subject.expect(subject.claim({ tokenKey, ...early }), 'conflict', 'the token was used');

    await subject.advance(subject.short + 50);
    await subject.expect(forged, 'done', 'a conflict must change nothing');
    await subject.expect(reused, 'done', 'a conflict must change nothing');
  },

  'loses no handled event among a thousand others': async (subject) => {
    const claims = Array.from({ length: 1_000 }, () =>
      subject.claim({ tokenKey: digest(), validFor: 60 * LONG }),
    );
    const each = async (act: (claim: ReplayClaim) => Promise<void>): Promise<void> => {
      const waiting = claims.values();
      const actors = Array.from({ length: AT_ONCE }, async () => {
        for (const claim of waiting) await act(claim);
      });
      await Promise.all(actors);
    };
    await each(async (claim) => subject.handle(claim));

    await each(async (claim) => subject.expect(claim, 'done', 'every one must be done'));
  },
};

/** For stores whose time a test can move: no one waits so long. */
const LONG_CASES: typeof CASES = {
  'remembers a handled event for days': async (subject) => {
    const claim = subject.claim({ validFor: 7 * DAY, keepUntil: subject.clock.now() + 30 * DAY });
    await subject.handle(claim);
    await subject.advance(7 * DAY - LONG);
    await subject.expect(claim, 'done', 'its token is still valid');
    await subject.advance(22 * DAY);
    await subject.expect(claim, 'done', 'it must be kept until keepUntil');
  },
};

/** For stores that can join a transaction. */
const TRANSACTION_CASES: typeof CASES = {
  'reports an event as done as soon as the transaction of its handler is committed': async (
    subject,
  ) => {
    const reservation = await subject.reserve(subject.claim({ tokenKey: digest() }));
    const transaction = await subject.begin!();
    assert.equal(await subject.commitWith(transaction.tx, reservation), true);
    await transaction.commit();

    await subject.expect(reservation.claim, 'done', 'the transaction was committed');
    await subject.expectFenced(reservation, 'a handled event must stay done');
    await subject.expect(reservation.claim, 'done', 'a release afterwards must change nothing');
  },

  'keeps an event in progress, and can free it, after the transaction was rolled back': async (
    subject,
  ) => {
    const reservation = await subject.reserve(subject.claim({ tokenKey: digest() }));
    const transaction = await subject.begin!();
    assert.equal(await subject.commitWith(transaction.tx, reservation), true);
    await transaction.rollback();

    await subject.expect(reservation.claim, 'in-progress', 'nothing was committed');
    assert.equal(await subject.store.release(reservation), true, 'it is still held');
    await subject.expect(reservation.claim, 'reserved', 'it was released');
  },

  'makes a release wait for the end of the transaction': async (subject) => {
    for (const end of ['commit', 'rollback'] as const) {
      const reservation = await subject.reserve(subject.claim());
      const transaction = await subject.begin!();
      assert.equal(await subject.commitWith(transaction.tx, reservation), true);
      const release = subject.store.release(reservation);
      await transaction[end]();

      assert.equal(await release, end === 'rollback', `a release before a ${end}`);
      const after = end === 'commit' ? 'done' : 'reserved';
      await subject.expect(reservation.claim, after, `after a ${end}`);
    }
  },

  'joins no transaction for a holder that has lost its lease': async (subject) => {
    const lost = await subject.reserve(subject.claim({ lease: subject.short }));
    await subject.advance(subject.short + 50);
    const held = await subject.reserve({ ...lost.claim, lease: LONG });
    const transaction = await subject.begin!();
    assert.equal(await subject.commitWith(transaction.tx, lost), false, 'the lease was lost');
    await transaction.rollback();

    assert.equal(await subject.store.commit(held), true, 'its holder is another');
  },
};

function tally(verdicts: readonly ReplayVerdict[]): Record<string, number> {
  const counts: Record<string, number> = {};
  for (const { status } of verdicts) counts[status] = (counts[status] ?? 0) + 1;
  return counts;
}

/** A key as receivers make it: 43 characters that say nothing. */
function digest(): string {
  return randomBytes(32).toString('base64url');
}
