import { setTimeout as sleep } from 'node:timers/promises';
import { Redis } from 'ioredis';
import { Address, freePorts, kill, until } from './servers.mjs';

/** Milliseconds after which a node counts as failed. */
const NODE_TIMEOUT = 2_000;

async function startRedis(workshop, port, options = {}) {
  const folder = await workshop.folder(`redis-${port}`);
  const all = {
    port,
    bind: '127.0.0.1',
    dir: folder,
    save: '',
    appendonly: 'yes',
    'repl-diskless-sync-delay': 0,
    ...options,
  };
  const parameters = Object.entries(all).flatMap(([name, value]) => [
    `--${name}`,
    ...[value].flat().map(String),
  ]);
  const child = workshop.run('redis-server', parameters);
  await until(async () => (await ask(port, 'PING')) === 'PONG', 'Redis');
  return child;
}

/** Sends one command. */
async function ask(port, command, ...parameters) {
  const client = new Redis({ port, lazyConnect: true, retryStrategy: () => null });
  client.on('error', () => {});
  try {
    await client.connect();
    return await client.call(command, ...parameters);
  } finally {
    client.disconnect();
  }
}

/** A replica that has not yet copied its master cannot replace it. */
async function untilReplicated(port) {
  const isReplicated = async () =>
    (await ask(port, 'INFO', 'replication')).includes('master_link_status:up');
  await until(isReplicated, 'The replica');
}

/** A single server. */
export async function redisServer(workshop) {
  const [port] = await freePorts(1);
  await startRedis(workshop, port);
  return { place: { engine: 'redis', port } };
}

/** A single server, which `fail()` makes unreachable for 10 s without closing a connection. */
export async function vanishingRedis(workshop) {
  const [port] = await freePorts(1);
  await startRedis(workshop, port);
  const address = await Address.open([port]);
  return {
    place: { engine: 'redis', port: address.port },
    async fail() {
      address.vanish();
      await sleep(10_000);
      address.recover();
    },
    close: () => address.close(),
  };
}

/** Three masters with a replica each. `fail()` kills the master of the queue. */
export async function redisCluster(workshop) {
  const ports = await freePorts(6);
  const options = {
    'cluster-enabled': 'yes',
    'cluster-node-timeout': NODE_TIMEOUT,
    'cluster-require-full-coverage': 'no',
  };
  const children = await Promise.all(ports.map((port) => startRedis(workshop, port, options)));
  const nodes = ports.map((port) => `127.0.0.1:${port}`);
  const create = ['--cluster', 'create', ...nodes, '--cluster-replicas', '1', '--cluster-yes'];
  await workshop.execute('redis-cli', create);
  for (const port of ports) {
    const isUp = async () => (await ask(port, 'CLUSTER', 'INFO')).includes('cluster_state:ok');
    await until(isUp, 'The cluster');
  }
  let replicas = [];
  await until(async () => {
    const all = (await ask(ports[0], 'CLUSTER', 'NODES')).split('\n');
    replicas = all.filter((line) => / slave /.test(line));
    return replicas.length === 3;
  }, 'The replicas');
  for (const line of replicas) await untilReplicated(Number(/:(\d+)@/.exec(line)[1]));
  return {
    place: { engine: 'redis', nodes: ports.map((port) => ({ host: '127.0.0.1', port })) },
    async fail() {
      const slot = await ask(ports[0], 'CLUSTER', 'KEYSLOT', '{webhooks}');
      const ranges = await ask(ports[0], 'CLUSTER', 'SLOTS');
      const [, , [, master]] = ranges.find(([from, to]) => from <= slot && slot <= to);
      await kill(children[ports.indexOf(Number(master))]);
    },
  };
}

/** A master, two replicas and three sentinels. `fail()` kills the master. */
export async function redisSentinel(workshop) {
  const [master, ...others] = await freePorts(6);
  const [replicas, sentinels] = [others.slice(0, 2), others.slice(2)];
  const child = await startRedis(workshop, master);
  for (const port of replicas) {
    await startRedis(workshop, port, { replicaof: ['127.0.0.1', master] });
    await untilReplicated(port);
  }
  for (const port of sentinels) {
    const folder = await workshop.folder(`sentinel-${port}`);
    const file = await workshop.file(folder, 'sentinel.conf', [
      `port ${port}`,
      'bind 127.0.0.1',
      `dir ${folder}`,
      `sentinel monitor webhooks 127.0.0.1 ${master} 2`,
      `sentinel down-after-milliseconds webhooks ${NODE_TIMEOUT}`,
      'sentinel failover-timeout webhooks 6000',
    ]);
    workshop.run('redis-server', [file, '--sentinel']);
  }
  for (const port of sentinels) {
    await until(async () => {
      const known = await ask(port, 'SENTINEL', 'MASTER', 'webhooks');
      const of = (name) => Number(known[known.indexOf(name) + 1]);
      return of('num-slaves') === 2 && of('num-other-sentinels') === 2;
    }, 'Sentinel');
  }
  const place = {
    engine: 'redis',
    sentinels: sentinels.map((port) => ({ host: '127.0.0.1', port })),
  };
  return { place, fail: async () => kill(child) };
}
