import { setTimeout as sleep } from 'node:timers/promises';
import {
  pgBouncer,
  postgresOnSmallDisk,
  postgresServer,
  postgresStandby,
  vanishingPostgres,
} from './postgres.mjs';
import { redisCluster, redisSentinel, redisServer, vanishingRedis } from './redis.mjs';

const POSTGRES = ['postgres', 'initdb'];
const REDIS = ['redis-server', 'redis-cli'];

const fail = async ({ servers }) => servers.fail();
/** Milliseconds between two events of a caller in a soak: 40 events a second, so that half an hour leaves the machine usable. */
const CALM = 200;

/** The same where eight instances together publish as much as two do otherwise. */
const SHARED = 80;

/** A third of the load. */
const nothing = async ({ seconds }) => sleep((seconds * 1_000) / 3);

/** Kills one instance after the other, and starts it again. */
async function killInstances({ trial, seconds }) {
  const pause = (seconds * 600) / trial.size;
  for (let index = 0; index < trial.size; index++) {
    await trial.restart(index, 'SIGKILL');
    await sleep(pause);
  }
}

/** Replaces one instance after the other, as a deployment does. */
async function deploy({ trial }) {
  for (let index = 0; index < trial.size; index++) await trial.restart(index, 'SIGTERM');
}

/** What runs, how many instances, and what happens to it. `needs` lists programs of the operating system. */
export const SET_UPS = {
  'redis-cluster': { needs: REDIS, open: redisCluster, instances: 2, trouble: fail },
  'redis-sentinel': { needs: REDIS, open: redisSentinel, instances: 2, trouble: fail },
  'postgres-standby': {
    needs: [...POSTGRES, 'pg_basebackup'],
    open: postgresStandby,
    instances: 2,
    trouble: fail,
  },
  pgbouncer: {
    needs: [...POSTGRES, 'pgbouncer'],
    open: pgBouncer,
    instances: 2,
    trouble: fail,
  },
  'vanished-postgres': { needs: POSTGRES, open: vanishingPostgres, instances: 2, trouble: fail },
  'vanished-redis': { needs: REDIS, open: vanishingRedis, instances: 2, trouble: fail },
  'full-disk': {
    // Root alone can mount one.
    needs: [...POSTGRES, process.getuid?.() === 0 ? 'mount' : 'mount (as root)'],
    open: postgresOnSmallDisk,
    instances: 2,
    trouble: fail,
  },
  'no-connections': { needs: POSTGRES, open: postgresServer, instances: 2, trouble: fail },
  'killed-instances-redis': {
    needs: REDIS,
    open: redisServer,
    instances: 8,
    pause: SHARED,
    trouble: killInstances,
  },
  'killed-instances-postgres': {
    needs: POSTGRES,
    open: postgresServer,
    instances: 8,
    pause: SHARED,
    trouble: killInstances,
  },
  'rolling-restart-redis': { needs: REDIS, open: redisServer, instances: 4, trouble: deploy },
  'rolling-restart-postgres': {
    needs: POSTGRES,
    open: postgresServer,
    instances: 4,
    trouble: deploy,
  },
  'soak-redis': {
    needs: REDIS,
    open: redisServer,
    instances: 2,
    pause: CALM,
    trouble: nothing,
  },
  'soak-postgres': {
    needs: POSTGRES,
    open: postgresServer,
    instances: 2,
    pause: CALM,
    trouble: nothing,
  },
};
