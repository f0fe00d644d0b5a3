import { AsyncLocalStorage } from 'node:async_hooks';
import { beforeEach, describe, expect, it } from '@jest/globals';
import { TestClock } from 'nestjs-webhook-token/testing';
import type { DeliveryRecord, EnqueuedDelivery } from 'nestjs-webhook-token/ports';
import {
  GroupCommit,
  MAX_GROUP_BYTES,
  MAX_GROUP_DELIVERIES,
} from '../../lib/postgres/group-commit.js';
import { due, large } from './deliveries.js';

const idsOf = (deliveries: readonly EnqueuedDelivery[]): string[] =>
  deliveries.map(({ delivery }) => delivery.id);

function recordOf(id: string): DeliveryRecord {
  const { delivery } = due(id);
  return { delivery, status: 'pending', attempts: 0, updatedAt: delivery.createdAt };
}

/** A commit that the engine is asked for, and its outcome. */
interface Commit {
  readonly ids: string[];
  /** The call in whose async context it is made. */
  readonly caller: string | undefined;
  readonly succeed: () => void;
  readonly fail: (error: unknown) => void;
}

describe('group commit', () => {
  const caller = new AsyncLocalStorage<string>();
  let clock: TestClock;
  let groups: Commit[];
  /** Calls that are repeated on their own. */
  let repeated: string[][];
  let commit: GroupCommit;

  beforeEach(() => {
    clock = new TestClock();
    groups = [];
    repeated = [];
    commit = new GroupCommit({
      record: async (deliveries, { waits }) => {
        const ids = idsOf(deliveries);
        if (!waits) {
          return new Promise<DeliveryRecord[]>((resolve, fail) => {
            const succeed = (): void => resolve(ids.map(recordOf));
            groups.push({ ids, caller: caller.getStore(), fail, succeed });
          });
        }
        repeated.push(ids);
        if (ids.includes('bad')) throw new Error('cannot be stored');
        return ids.map(recordOf);
      },
      isOutage: (error) => (error as Error).message === 'no connection',
      clock,
    });
  });

  const call = (...ids: string[]): Promise<readonly (DeliveryRecord | undefined)[]> =>
    commit.commitInGroup(ids.map((id) => due(id)));
  /** Lets promises settle. */
  const turn = (): Promise<void> => new Promise((resolve) => setImmediate(resolve));
  /** A call in its own turn of the event loop. */
  async function callAlone(
    ...ids: string[]
  ): Promise<{ answer: Promise<readonly (DeliveryRecord | undefined)[]> }> {
    const answer = call(...ids);
    await turn();
    return { answer };
  }

  it('records the calls of one turn together, and each answer has the records of its call', async () => {
    const answers = Promise.all([call('a'), call('b', 'c'), call(), call('d')]);
    await turn();
    expect(groups.map(({ ids }) => ids)).toEqual([['a', 'b', 'c', 'd']]);
    groups[0]!.succeed();

    expect((await answers).map((records) => records.map((record) => record?.delivery.id))).toEqual([
      ['a'],
      ['b', 'c'],
      [],
      ['d'],
    ]);
  });

  it('starts a second group at once, and collects further calls until one of the two ends', async () => {
    const { answer: first } = await callAlone('first');
    await callAlone('second');
    await callAlone('third');
    await callAlone('fourth');
    expect(groups.map(({ ids }) => ids)).toEqual([['first'], ['second']]);
    groups[0]!.succeed();
    expect(await first).toMatchObject([{ delivery: { id: 'first' } }]);
    await turn();

    expect(groups.map(({ ids }) => ids)).toEqual([['first'], ['second'], ['third', 'fourth']]);
  });

  it('records a group in the async context of one of its calls', async () => {
    for (const id of ['first', 'second', 'third']) await caller.run(id, async () => callAlone(id));
    groups[0]!.succeed();
    await turn();

    expect(groups.map((group) => group.caller)).toEqual(['first', 'second', 'third']);
  });

  it('answers a call when its own group is recorded', async () => {
    const answered: string[] = [];
    for (const id of ['first', 'second']) {
      void call(id).then(() => answered.push(id));
      await turn();
    }
    groups[1]!.succeed();
    await turn();

    expect(answered).toEqual(['second']);
  });

  it('fails only the call whose delivery cannot be stored', async () => {
    const answers = Promise.allSettled([call('good'), call('bad', 'beside'), call('fine')]);
    await turn();
    groups[0]!.fail(new Error('cannot be stored'));

    expect((await answers).map(({ status }) => status)).toEqual([
      'fulfilled',
      'rejected',
      'fulfilled',
    ]);
    expect(repeated).toEqual([['good'], ['bad', 'beside'], ['fine']]);
  });

  it('repeats nothing during an outage', async () => {
    const answers = Promise.allSettled([call('a'), call('b')]);
    await turn();
    groups[0]!.fail(new Error('no connection'));

    expect(await answers).toMatchObject([
      { status: 'rejected', reason: { message: 'no connection' } },
      { status: 'rejected', reason: { message: 'no connection' } },
    ]);
    expect(repeated).toEqual([]);
  });

  it('limits the deliveries of a group, and never divides a call', async () => {
    const half = Array.from({ length: MAX_GROUP_DELIVERIES / 2 }, (_, index) => `${index}`);
    for (const ids of [half, [...half, 'one more'], ['last']]) void call(...ids);
    await turn();
    expect(groups.map(({ ids }) => ids.length)).toEqual([half.length, half.length + 2]);

    void call(...half, ...half, ...half);
    groups[0]!.succeed();
    await turn();
    expect(groups[2]!.ids).toHaveLength(3 * half.length);
  });

  it('limits the payload bytes of a group', async () => {
    for (const id of ['a', 'b', 'c']) void commit.commitInGroup([large(id, MAX_GROUP_BYTES / 2)]);
    await turn();

    expect(groups.map(({ ids }) => ids)).toEqual([['a', 'b'], ['c']]);
  });

  it('does not block other calls forever if groups hang', async () => {
    await callAlone('hangs');
    await callAlone('hangs too');
    const { answer } = await callAlone('next');
    expect(groups).toHaveLength(2);
    await clock.advance(5_000);
    groups[2]!.succeed();

    expect(await answer).toMatchObject([{ delivery: { id: 'next' } }]);
  });

  it('is settled when every call has its answer', async () => {
    await commit.settled();
    void call('a');
    await callAlone('b');
    void call('c');
    let isSettled = false;
    void commit.settled().then(() => (isSettled = true));
    groups[0]!.succeed();
    await turn();
    expect(isSettled).toBe(false);

    groups[1]!.succeed();
    await turn();
    expect(isSettled).toBe(true);
  });
});
