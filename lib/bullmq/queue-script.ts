import type { Queue } from 'bullmq';

type Client = Awaited<ReturnType<Queue['getBackend']>['client']>;

/** A Lua script that runs on a queue's connection. Its only key is the base of this library's own keys. */
export class QueueScript {
  private static readonly all: QueueScript[] = [];
  /** By client: when all scripts are defined on it. */
  private static readonly defined = new WeakMap<object, Promise<void>>();

  constructor(
    private readonly name: string,
    private readonly lua: string,
  ) {
    QueueScript.all.push(this);
  }

  async run(queue: Queue, values: readonly (string | number)[]): Promise<unknown> {
    const client = await queue.getBackend().client;
    if (!QueueScript.defined.has(client)) {
      QueueScript.defined.set(client, QueueScript.defineAll(client, queue));
    }
    await QueueScript.defined.get(client);
    return client.runCommand(this.name, [ownKey(queue), ...values]);
  }

  private static async defineAll(client: Client, queue: Queue): Promise<void> {
    for (const { name, lua } of QueueScript.all) {
      client.defineCommand(name, { numberOfKeys: 1, lua });
    }
    if (client.options['enableAutoPipelining'] !== true) return;
    // A pipeline that ioredis has begun before knows none of them. Once this command is answered, it was sent; if it is not, the
    // first script fails too.
    await client.get(`${ownKey(queue)}:probe`).catch(() => {});
  }
}

/**
 * Begins a script that also runs on a full server, so that deliveries can be deleted there. Redis refuses only the first change of a
 * script, unless that needs no memory. Nothing uses the key itself.
 */
export const EVEN_IF_FULL = `redis.call('DEL', KEYS[1])`;

/** Calls that one run of a script carries, so that it does not hold up the server. */
const LARGEST_BATCH = 500;

interface PendingCall<T, R> {
  readonly item: T;
  readonly resolve: (result: R) => void;
  readonly reject: (error: unknown) => void;
}

/** Sends the calls of one turn of the event loop together, in their order: a script costs the client more than its work. */
export class ScriptBatch<T, R> {
  private pending: PendingCall<T, R>[] = [];

  /** @param run - runs the script, and returns a result for each item */
  constructor(private readonly run: (items: readonly T[]) => Promise<readonly R[]>) {}

  async add(items: readonly T[]): Promise<R[]> {
    return Promise.all(items.map(async (item) => this.addOne(item)));
  }

  private async addOne(item: T): Promise<R> {
    return new Promise((resolve, reject) => {
      if (this.pending.length === 0) setImmediate(() => this.send());
      this.pending.push({ item, resolve, reject });
    });
  }

  private send(): void {
    const calls = this.pending;
    this.pending = [];
    for (let from = 0; from < calls.length; from += LARGEST_BATCH) {
      void this.runBatch(calls.slice(from, from + LARGEST_BATCH));
    }
  }

  private async runBatch(calls: readonly PendingCall<T, R>[]): Promise<void> {
    try {
      const results = await this.run(calls.map(({ item }) => item));
      for (const [index, { resolve }] of calls.entries()) resolve(results[index]!);
    } catch (error) {
      for (const { reject } of calls) reject(error);
    }
  }
}

/** The base of this library's own keys. A job's id cannot contain a colon, so they never meet keys of BullMQ. */
export function ownKey(queue: Queue): string {
  return queue.toKey('webhooks');
}
