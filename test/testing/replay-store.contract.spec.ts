import { setTimeout as sleep } from 'node:timers/promises';
import { runInNewContext } from 'node:vm';
import { describe, expect, it } from '@jest/globals';
import { MemoryReplayStore } from 'nestjs-webhook-token';
import {
  type WebhookClock,
  ReplayStore,
  type ReplayClaim,
  type ReplayReservation,
  type ReplayVerdict,
} from 'nestjs-webhook-token/ports';
import { replayStoreContract } from '../../lib/testing/replay-store.contract.js';
import { documentAt } from '../docs/documents.js';

/** A common mistake: check, wait for the answer, then write. */
class GetThenSetStore extends ReplayStore {
  override readonly scope = 'shared';
  private readonly records = new Map<string, ReplayReservation | 'done'>();

  override async reserve(claim: ReplayClaim): Promise<ReplayVerdict> {
    const record = this.records.get(claim.key);
    await Promise.resolve();
    if (record === 'done') return { status: 'done' };
    if (record) return { status: 'in-progress', retryAt: claim.replayUntil };
    const reservation = { claim, owner: `${Math.random()} of this process` };
    this.records.set(claim.key, reservation);
    return { status: 'reserved', reservation };
  }

  override async extend(): Promise<boolean> {
    return true;
  }

  override async commit({ claim }: ReplayReservation): Promise<boolean> {
    this.records.set(claim.key, 'done');
    return true;
  }

  override async release({ claim }: ReplayReservation): Promise<boolean> {
    return this.records.delete(claim.key);
  }
}

/** A correct store, from which the faulty stores are derived. */
class FaultyStore extends MemoryReplayStore {
  constructor(clock: WebhookClock) {
    super({ clock });
  }
}

class LooksAtNoFingerprint extends FaultyStore {
  override async reserve(claim: ReplayClaim): Promise<ReplayVerdict> {
    return super.reserve({ ...claim, fingerprint: '' });
  }
}

class LooksAtNoToken extends FaultyStore {
  override async reserve(claim: ReplayClaim): Promise<ReplayVerdict> {
    return super.reserve({ ...claim, tokenKey: claim.key });
  }
}

class HasNoLease extends FaultyStore {
  override async reserve(claim: ReplayClaim): Promise<ReplayVerdict> {
    return super.reserve({ ...claim, lease: 1e9 });
  }
}

class ForgetsWithTheToken extends FaultyStore {
  override async reserve(claim: ReplayClaim): Promise<ReplayVerdict> {
    return super.reserve({ ...claim, keepUntil: claim.replayUntil });
  }
  override async commit({ claim, owner }: ReplayReservation): Promise<boolean> {
    return super.commit({ claim: { ...claim, keepUntil: claim.replayUntil }, owner });
  }
}

class LooksAtTheFirstTokenOnly extends FaultyStore {
  private readonly first = new Map<string, ReplayClaim>();

  override async reserve(claim: ReplayClaim): Promise<ReplayVerdict> {
    const { replayUntil, keepUntil } = this.first.get(claim.key) ?? claim;
    const verdict = await super.reserve({ ...claim, replayUntil, keepUntil });
    if (verdict.status === 'reserved') this.first.set(claim.key, claim);
    return verdict;
  }
}

class TakesTheTimesOfTheCommit extends FaultyStore {
  private readonly open = new Set<string>();

  override async reserve(claim: ReplayClaim): Promise<ReplayVerdict> {
    if (this.open.has(claim.key)) return { status: 'in-progress', retryAt: claim.replayUntil };
    const verdict = await super.reserve(claim);
    if (verdict.status === 'reserved') this.open.add(claim.key);
    return verdict;
  }
  override async commit(reservation: ReplayReservation): Promise<boolean> {
    this.open.delete(reservation.claim.key);
    return super.commit(reservation);
  }
}

/** Sets the expiry of an entry again with each copy. */
class TakesTheTimesOfTheCopy extends FaultyStore {
  protected readonly statuses: readonly string[] = ['done', 'in-progress'];
  private readonly entries = new Map<string, number>();

  constructor(private readonly time: WebhookClock) {
    super(time);
  }

  override async reserve(claim: ReplayClaim): Promise<ReplayVerdict> {
    const { key, keepUntil } = claim;
    const kept = this.entries.get(key) ?? Infinity;
    const verdict = await super.reserve(claim);
    if (verdict.status === 'done' && kept <= this.time.now()) {
      return { status: 'reserved', reservation: { claim, owner: 'another' } };
    }
    if (verdict.status === 'reserved' || this.statuses.includes(verdict.status)) {
      this.entries.set(key, keepUntil);
    }
    return verdict;
  }
}

class TakesTheTimesOfAConflict extends TakesTheTimesOfTheCopy {
  protected override readonly statuses = ['conflict'];
}

class KeepsForAnHour extends FaultyStore {
  private readonly end: number;

  constructor(clock: WebhookClock) {
    super(clock);
    this.end = clock.now() + 3_600_000;
  }
  override async reserve(claim: ReplayClaim): Promise<ReplayVerdict> {
    const [replayUntil, keepUntil] = [claim.replayUntil, claim.keepUntil].map((time) =>
      Math.min(time, this.end),
    ) as [number, number];
    return super.reserve({ ...claim, replayUntil, keepUntil });
  }
}

class ExtendsNothing extends FaultyStore {
  override async extend(): Promise<boolean> {
    return true;
  }
}

class ReleasesNothing extends FaultyStore {
  override async release(): Promise<boolean> {
    return true;
  }
}

class FencesNoOwner extends FaultyStore {
  private readonly latest = new Map<string, ReplayReservation>();

  override async reserve(claim: ReplayClaim): Promise<ReplayVerdict> {
    const verdict = await super.reserve(claim);
    if (verdict.status === 'reserved') this.latest.set(claim.key, verdict.reservation);
    return verdict;
  }
  override async commit({ claim }: ReplayReservation): Promise<boolean> {
    const latest = this.latest.get(claim.key);
    return latest !== undefined && super.commit(latest);
  }
}

/** Behaves like a cache: it evicts entries when a store must refuse. */
class EvictsWhenFull extends ReplayStore {
  override readonly scope = 'process';
  private inner: MemoryReplayStore;

  constructor(private readonly clock: WebhookClock) {
    super();
    this.inner = this.empty();
  }

  override async reserve(claim: ReplayClaim): Promise<ReplayVerdict> {
    try {
      return await this.inner.reserve(claim);
    } catch {
      this.inner = this.empty();
      return this.inner.reserve(claim);
    }
  }

  override async extend(reservation: ReplayReservation): Promise<boolean> {
    return this.inner.extend(reservation);
  }

  override async commit(reservation: ReplayReservation): Promise<boolean> {
    return this.inner.commit(reservation);
  }

  override async release(reservation: ReplayReservation): Promise<boolean> {
    return this.inner.release(reservation);
  }

  private empty(): MemoryReplayStore {
    return new MemoryReplayStore({ clock: this.clock, maxEntries: 500 });
  }
}

async function violations(create: (clock: WebhookClock) => ReplayStore): Promise<string[]> {
  const violated: string[] = [];
  for (const { name, run } of replayStoreContract(create)) {
    await run().catch((error: Error) => {
      expect(error.name).toBe('AssertionError');
      violated.push(name);
    });
  }
  return violated;
}

describe('the contract of replay stores', () => {
  it('is violated by a store that checks before it writes', async () => {
    expect(await violations(() => new GetThenSetStore())).toContain(
      'reserves an event for one of 20 concurrent calls',
    );
  });

  it.each([
    [
      LooksAtNoFingerprint,
      'reports a known id with other content as a conflict, in progress and done',
    ],
    [
      LooksAtNoToken,
      'reports a known token with another event as a conflict, in progress and done',
    ],
    [LooksAtNoToken, 'reserves a shared token for one of 20 concurrent events'],
    [HasNoLease, 'frees a reservation whose lease has ended, and fences its holder'],
    [ForgetsWithTheToken, 'remembers a handled event beyond the lease, and beyond the token'],
    [LooksAtTheFirstTokenOnly, 'remembers a handled event for as long as the token of a copy'],
    [
      TakesTheTimesOfTheCommit,
      'remembers an event for as long as the token of a copy that arrived while it was handled',
    ],
    [TakesTheTimesOfTheCopy, 'keeps the times of an event if a copy has earlier ones'],
    [TakesTheTimesOfAConflict, 'keeps the times of an event after a conflict'],
    [KeepsForAnHour, 'remembers a handled event for days'],
    [ExtendsNothing, 'holds an extended reservation beyond its first lease'],
    [ReleasesNothing, 'frees a released event and its token'],
    [FencesNoOwner, 'frees a reservation whose lease has ended, and fences its holder'],
    [FencesNoOwner, 'lets only the owner change a reservation'],
    [EvictsWhenFull, 'loses no handled event among a thousand others'],
  ])('is violated by a store that %p, in "%s"', async (Faulty, clause) => {
    expect(await violations((clock) => new Faulty(clock))).toContain(clause);
  });

  it('is fulfilled by the store that those are derived from', async () => {
    expect(await violations((clock) => new FaultyStore(clock))).toEqual([]);
  });

  it('is fulfilled by the example of the documentation', async () => {
    const { blocks } = documentAt('docs/guides/testing.md');
    const { code } = blocks.find(({ code: one }) => one.includes('replayStoreContract('))!;
    const failures: string[] = [];
    const running: Promise<void>[] = [];
    const it = (name: string, run: () => Promise<void>): void => {
      running.push(run().catch(() => void failures.push(name)));
    };
    runInNewContext(code.replace(/^import .*$/gm, ''), {
      MemoryReplayStore,
      replayStoreContract,
      it,
    });
    await Promise.all(running);

    expect(running.length).toBeGreaterThan(20);
    expect(failures).toEqual([]);
  });

  it('waits for real time with the option wait', async () => {
    const waits: number[] = [];
    const contract = replayStoreContract({
      create: (clock) => new MemoryReplayStore({ clock }),
      async advance(ms) {
        waits.push(ms);
        await sleep(0);
      },
    });
    const clause = contract.find(({ name }) => name.startsWith('also frees the token'))!;

    // The wait was shorter than the lease, so a store on the system clock still holds it.
    await expect(clause.run()).rejects.toThrow(
      'the token of an event that was not handled must be free',
    );
    expect(waits).toEqual([expect.any(Number)]);
  });

  it('names each case once', () => {
    const names = replayStoreContract(() => new GetThenSetStore()).map(({ name }) => name);

    expect(new Set(names).size).toBe(names.length);
  });
});
