import type { Queue } from 'bullmq';

/** A Lua script that runs on a queue's connection. Its only key is the base of this library's own keys. */
export class QueueScript {
  private readonly definedOn = new WeakSet<object>();

  constructor(
    private readonly name: string,
    private readonly lua: string,
  ) {}

  async run(queue: Queue, values: readonly (string | number)[]): Promise<unknown> {
    const client = await queue.getBackend().client;
    if (!this.definedOn.has(client)) {
      client.defineCommand(this.name, { numberOfKeys: 1, lua: this.lua });
      this.definedOn.add(client);
    }
    return client.runCommand(this.name, [ownKey(queue), ...values]);
  }
}

/** The base of this library's own keys. A job's id cannot contain a colon, so they never meet keys of BullMQ. */
export function ownKey(queue: Queue): string {
  return queue.toKey('webhooks');
}
