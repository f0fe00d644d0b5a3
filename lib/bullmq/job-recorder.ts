import type { Queue } from 'bullmq';
import type { EnqueuedDelivery } from '../queue/webhook-queue.js';

/** A job as `addBulk` takes it. */
export type NewJob = Parameters<Queue['addBulk']>[0][number];

type RedisClient = Awaited<ReturnType<Queue['getBackend']>['client']>;

/** Lists which ids have a job, by position. */
const FIND_EXISTING = `local positions = {}
for position, id in ipairs(ARGV) do
  if redis.call('EXISTS', KEYS[1] .. id) == 1 then positions[#positions + 1] = position end
end
return positions`;

interface PendingCall {
  readonly deliveries: readonly EnqueuedDelivery[];
  /** Ids that no earlier call is recording. */
  readonly ids: readonly string[];
  readonly resolve: (recorded: Set<string>) => void;
  readonly reject: (error: unknown) => void;
}

/**
 * Records deliveries as jobs. Each call is recorded by itself, all of its deliveries or none.
 *
 * BullMQ keeps the job of an id that is taken, and does not say so. Therefore the ids are looked up first, those of concurrent calls
 * in one command. A connection runs its commands in order, so the look-up takes no round trip of its own.
 */
export class JobRecorder {
  private waiting: PendingCall[] = [];
  /** Calls without an answer. */
  private readonly calls = new Set<Promise<unknown>>();
  /** Ids of these calls. */
  private readonly recording = new Set<string>();

  constructor(
    private readonly queue: Queue,
    private readonly jobOf: (delivery: EnqueuedDelivery) => NewJob,
  ) {}

  /** @returns the ids that had no job before */
  async record(deliveries: readonly EnqueuedDelivery[]): Promise<Set<string>> {
    const ids: string[] = [];
    for (const { delivery } of deliveries) {
      if (this.recording.has(delivery.id)) continue;
      this.recording.add(delivery.id);
      ids.push(delivery.id);
    }
    const call = new Promise<Set<string>>((resolve, reject) => {
      this.waiting.push({ deliveries, ids, resolve, reject });
      if (this.waiting.length === 1) queueMicrotask(() => void this.recordWaiting());
    });
    this.calls.add(call);
    try {
      return await call;
    } finally {
      this.calls.delete(call);
      for (const id of ids) this.recording.delete(id);
    }
  }

  /** Resolves when every call is answered. */
  async settled(): Promise<void> {
    await Promise.allSettled(this.calls);
  }

  private async recordWaiting(): Promise<void> {
    const calls = this.waiting;
    this.waiting = [];
    try {
      const client = await this.queue.getBackend().client;
      const existing = this.findExisting(
        client,
        calls.flatMap(({ ids }) => ids),
      );
      for (const call of calls) {
        this.add(call, existing).then(call.resolve, call.reject);
      }
    } catch (error) {
      for (const { reject } of calls) reject(error);
    }
  }

  private async add(
    { deliveries, ids }: PendingCall,
    found: Promise<ReadonlySet<string>>,
  ): Promise<Set<string>> {
    const jobs = deliveries.map(this.jobOf);
    const [first] = jobs;
    const added =
      jobs.length === 1
        ? this.queue.add(first!.name, first!.data, first!.opts)
        : // One MULTI: all or none.
          this.queue.addBulk(jobs);
    const [existing] = await Promise.all([found, added]);
    return new Set(ids.filter((id) => !existing.has(id)));
  }

  /** Sends the look-up before it returns. */
  private async findExisting(
    client: RedisClient,
    ids: readonly string[],
  ): Promise<ReadonlySet<string>> {
    const { eval: evaluate } = client as { eval?: unknown };
    // A command that is defined by its script could be sent again, after the jobs, if the server does not know the script yet.
    if (typeof evaluate === 'function') {
      // As a list, since a call takes only so many arguments.
      const keyAndIds = [this.queue.toKey(''), ...ids];
      const found: unknown = await evaluate.call(client, FIND_EXISTING, 1, keyAndIds);
      const positions = found as readonly number[];
      return new Set(positions.map((position) => ids[position - 1]!));
    }
    const lookups = client.pipeline();
    for (const id of ids) lookups.hgetall(this.queue.toKey(id));
    const replies = await lookups.exec();
    return new Set(ids.filter((_, index) => hasFields(replies![index]!)));
  }
}

/** Whether a hash exists. @throws the error of Redis */
function hasFields([error, fields]: readonly [Error | null, unknown]): boolean {
  if (error !== null) throw error;
  return Object.keys(fields as object).length > 0;
}
