import { rm, writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { setTimeout as sleep } from 'node:timers/promises';
import { Client } from 'pg';
import { Address, freePorts, kill, until } from './servers.mjs';

/** Megabytes of a small disk: a new cluster takes about 75. */
const DISK = 160;
/** Bytes that are written at once to fill it. */
const BLOCK = 256 * 1024;

const urlOf = (port) => `postgresql://postgres@127.0.0.1:${port}/postgres`;

async function query(port, text) {
  const limits = { connectionTimeoutMillis: 5_000, query_timeout: 60_000 };
  const client = new Client({ connectionString: urlOf(port), ...limits });
  client.on('error', () => {});
  await client.connect();
  try {
    return await client.query(text);
  } finally {
    // Not awaited: the server may be gone without an answer.
    void client.end().catch(() => {});
  }
}

async function startPostgres(workshop, folder, port, settings = {}) {
  const all = { port, listen_addresses: '127.0.0.1', unix_socket_directories: '', ...settings };
  const parameters = Object.entries(all).flatMap(([name, value]) => ['-c', `${name}=${value}`]);
  const child = workshop.run('postgres', ['-D', folder, ...parameters]);
  await until(async () => (await query(port, 'SELECT 1')).rowCount === 1, 'PostgreSQL');
  return child;
}

async function primary(workshop, port, settings) {
  const folder = await workshop.folder(`postgres-${port}`);
  await workshop.execute('initdb', ['-A', 'trust', '-U', 'postgres', '-D', folder]);
  return { folder, child: await startPostgres(workshop, folder, port, settings) };
}

/** A single server. `fail()` closes the connections of the instances, and leaves no connection for them for 5 s. */
export async function postgresServer(workshop) {
  const [port] = await freePorts(1);
  await primary(workshop, port, { max_connections: 120 });
  const url = urlOf(port);
  return {
    place: { engine: 'postgres', url },
    async fail() {
      const taken = [];
      const takeAll = async () => {
        for (;;) {
          const client = new Client({ connectionString: url, application_name: 'taken' });
          client.on('error', () => {});
          try {
            await client.connect();
          } catch {
            return;
          }
          taken.push(client);
        }
      };
      await takeAll();
      await taken[0].query(
        "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE backend_type = 'client backend' AND application_name <> 'taken'",
      );
      await takeAll();
      await sleep(5_000);
      await Promise.all(taken.map(async (client) => client.end()));
    },
  };
}

/** A single server on a disk of its own. `fail()` fills it for 10 s, and starts the server again, which a full log has stopped. */
export async function postgresOnSmallDisk(workshop) {
  const [port] = await freePorts(1);
  const folder = await workshop.smallDisk(`postgres-${port}`, DISK);
  await workshop.execute('initdb', ['-A', 'trust', '-U', 'postgres', '-D', folder]);
  const settings = { min_wal_size: '32MB', max_wal_size: '32MB', max_connections: 120 };
  const child = await startPostgres(workshop, folder, port, settings);
  return {
    place: { engine: 'postgres', url: urlOf(port) },
    async fail() {
      const filler = join(folder, 'filler');
      const block = Buffer.alloc(BLOCK);
      const deadline = Date.now() + 10_000;
      // Until the time is over: the server frees old segments of its log.
      while (Date.now() < deadline) {
        await writeFile(filler, block, { flag: 'a' }).catch(() => sleep(100));
      }
      await rm(filler);
      await kill(child, 'SIGINT');
      await startPostgres(workshop, folder, port, settings);
    },
  };
}

/** A single server, which `fail()` makes unreachable for 10 s without closing a connection. */
export async function vanishingPostgres(workshop) {
  const [port] = await freePorts(1);
  await primary(workshop, port, { max_connections: 120 });
  const address = await Address.open([port]);
  return {
    place: { engine: 'postgres', url: urlOf(address.port) },
    async fail() {
      address.vanish();
      await sleep(10_000);
      address.recover();
    },
    close: () => address.close(),
  };
}

/** A primary with a synchronous standby, behind one address. `fail()` kills the primary and promotes the standby. */
export async function postgresStandby(workshop) {
  const [first, second] = await freePorts(2);
  const { child } = await primary(workshop, first, { synchronous_standby_names: '*' });
  const folder = await workshop.folder(`postgres-${second}`);
  const source = ['-h', '127.0.0.1', '-p', String(first), '-U', 'postgres'];
  await workshop.execute('pg_basebackup', [...source, '-D', folder, '-R', '-X', 'stream']);
  await startPostgres(workshop, folder, second);
  await until(async () => {
    const { rows } = await query(first, 'SELECT sync_state FROM pg_stat_replication');
    return rows[0]?.sync_state === 'sync';
  }, 'Replication');
  const address = await Address.open([first]);
  return {
    place: { engine: 'postgres', url: urlOf(address.port) },
    async fail() {
      child.kill('SIGKILL');
      await query(second, 'SELECT pg_promote()');
      await query(second, "ALTER SYSTEM SET synchronous_standby_names = ''");
      await query(second, 'SELECT pg_reload_conf()');
      address.targets = [second];
    },
    close: () => address.close(),
  };
}

/** A server behind PgBouncer in transaction mode. `fail()` restarts PgBouncer. */
export async function pgBouncer(workshop) {
  const [port, pooler] = await freePorts(2);
  await primary(workshop, port);
  const folder = await workshop.folder('pgbouncer');
  const users = await workshop.file(folder, 'users.txt', ['"postgres" ""']);
  const file = await workshop.file(folder, 'pgbouncer.ini', [
    '[databases]',
    `postgres = host=127.0.0.1 port=${port} dbname=postgres user=postgres`,
    '[pgbouncer]',
    `listen_port = ${pooler}`,
    'listen_addr = 127.0.0.1',
    'unix_socket_dir =',
    'auth_type = trust',
    `auth_file = ${users}`,
    'pool_mode = transaction',
    'default_pool_size = 10',
    'max_client_conn = 200',
  ]);
  const start = async () => {
    const child = workshop.run('pgbouncer', ['-q', file]);
    await until(async () => (await query(pooler, 'SELECT 1')).rowCount === 1, 'PgBouncer');
    return child;
  };
  let child = await start();
  return {
    place: { engine: 'postgres', url: urlOf(pooler), notify: false },
    async fail() {
      child.kill('SIGKILL');
      await sleep(1_000);
      child = await start();
    },
  };
}
