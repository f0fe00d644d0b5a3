import { createHash } from 'node:crypto';
import type { NodeRedisClient, RedisClient } from './redis-client.interface.js';

/** A Lua script: one atomic step on the server, sent in full only to a server that does not know it yet. */
export class RedisScript {
  private readonly sha1: string;

  constructor(private readonly source: string) {
    this.sha1 = createHash('sha1').update(source).digest('hex');
  }

  async run(client: RedisClient, keys: string[], values: string[]): Promise<unknown> {
    try {
      return await this.send(client, keys, values, false);
    } catch (error) {
      // A server that was restarted, or a replica that was promoted, has forgotten its scripts.
      if (!(error instanceof Error) || !error.message.startsWith('NOSCRIPT')) throw error;
      return this.send(client, keys, values, true);
    }
  }

  private async send(
    client: RedisClient,
    keys: string[],
    values: string[],
    inFull: boolean,
  ): Promise<unknown> {
    if (isNodeRedis(client)) {
      const options = { keys, arguments: values };
      return inFull ? client.eval(this.source, options) : client.evalSha(this.sha1, options);
    }
    return inFull
      ? client.eval(this.source, keys.length, ...keys, ...values)
      : client.evalsha(this.sha1, keys.length, ...keys, ...values);
  }
}

function isNodeRedis(client: RedisClient): client is NodeRedisClient {
  // ioredis has `evalsha` alone; node-redis has `evalSha` and, for commands as they are spelt, `EVALSHA`.
  return typeof (client as Partial<NodeRedisClient>).evalSha === 'function';
}
