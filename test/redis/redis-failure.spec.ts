import { describe, expect, it } from '@jest/globals';
import { Cluster, Redis } from 'ioredis';
import { createClient } from 'redis';
import { redisFailure } from '../../lib/redis/redis-failure.js';

const REFUSED = Object.assign(new Error('connect ECONNREFUSED'), { code: 'ECONNREFUSED' });

function messageFor(client: unknown, cause: unknown = REFUSED): string {
  return redisFailure('The delivery queue', client, cause).message;
}

describe('the error of a Redis that is unavailable', () => {
  it('says what happened, why, and what to do', () => {
    expect(messageFor({ host: 'redis.example', port: 6380 })).toBe(
      'The delivery queue cannot use Redis at redis.example:6380: connection refused; check that it is running and that the address is right',
    );
  });

  it.each<[string, unknown, string]>([
    ['options without an address', {}, 'Redis at 127.0.0.1:6379:'],
    ['a URL', { url: 'redis://user:hush@redis.example:6380/2' }, 'Redis at redis.example:6380:'],
    ['a socket', { path: '/run/redis.sock' }, 'Redis at /run/redis.sock:'],
    ['sentinels', { sentinels: [{ host: 'a', port: 1 }, { host: 'b' }] }, 'Redis at a:1, b:6379:'],
    [
      'a client of ioredis',
      new Redis('redis://:hush@redis.example:6380', { lazyConnect: true }),
      'Redis at redis.example:6380:',
    ],
    [
      'a cluster of ioredis',
      new Cluster([{ host: 'a', port: 1 }], {
        lazyConnect: true,
        redisOptions: { password: 'hush' },
      }),
      'Redis at a:1:',
    ],
    [
      'a client of node-redis',
      createClient({ url: 'redis://user:hush@redis.example:6380' }),
      'Redis at redis.example:6380:',
    ],
    ['a cluster without startup nodes', { isCluster: true }, 'cannot use Redis:'],
  ])('names the address of %s, and no password', (_, client, expected) => {
    expect(messageFor(client)).toContain(expected);
    expect(messageFor(client)).not.toContain('hush');
  });

  it.each([
    ['OOM command not allowed', 'raise maxmemory'],
    ["READONLY You can't write against a read only replica.", 'connect to the primary'],
    [
      'UNBLOCKED force unblock from blocking operation, instance state changed (master -> replica?)',
      'connect to the new primary',
    ],
    ['NOREPLICAS Not enough good replicas to write.', 'lower min-replicas-to-write'],
    ['BUSY Redis is busy running a script.', 'SCRIPT KILL'],
    ['MISCONF Errors writing to the AOF file: No space left on device', 'free some space'],
    ['TRYAGAIN Multiple keys request during rehashing of slot', 'try again in a moment'],
    ['CLUSTERDOWN The cluster is down', 'check the other nodes'],
    ["MASTERDOWN Link with MASTER is down and replica-serve-stale-data is set to 'no'.", 'nodes'],
    ['WRONGPASS invalid username-password pair', 'check user name and password'],
    ["NOPERM this user has no permissions to run the 'eval' command", 'grant it'],
    ['Script attempted to access a non local key in a cluster node', 'it is a cluster'],
    ["Stream isn't writeable and enableOfflineQueue options is false", 'does not answer'],
    ['Command timed out', 'does not answer'],
  ])('explains the reply %s', (reply, expected) => {
    expect(messageFor({}, new Error(reply))).toContain(expected);
  });

  it('quotes nothing of a reply that it does not know', () => {
    expect(messageFor({}, new Error('ERR in SET key secret-value'))).toBe(
      'The delivery queue cannot use Redis at 127.0.0.1:6379: see the cause of this error',
    );
  });
});
