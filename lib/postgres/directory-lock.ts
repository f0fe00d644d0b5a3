import { open, readFile, rm, stat, utimes } from 'node:fs/promises';
import { hostname } from 'node:os';
import { join } from 'node:path';
import { WebhookStoreError } from '../errors/webhook.error.js';

/** The process that holds a directory. */
interface Holder {
  readonly host: string;
  readonly pid: number;
  /** Start time of the process, as its system counts it: a later process may have the same id. */
  readonly startedAt: string | null;
}

/** Milliseconds between two heartbeats, for processes on other machines, which cannot check whether this one is alive. */
const HEARTBEAT = 5_000;
/** Milliseconds without a heartbeat after which a lock is stale. */
const STALE_AFTER = 30_000;

/**
 * Reserves a directory for one process. Two processes that write to an embedded database lose acknowledged deliveries.
 *
 * The lock of a dead process is taken over: immediately on the same machine, on another one after 30 seconds without a
 * heartbeat.
 */
export class DirectoryLock {
  private readonly timer: NodeJS.Timeout;

  private constructor(private readonly path: string) {
    this.timer = setInterval(() => {
      const now = new Date();
      utimes(path, now, now).catch(() => {});
    }, HEARTBEAT).unref();
  }

  /**
   * @param directory - an existing directory
   * @throws {@link WebhookStoreError} `store_unavailable` if another process holds it
   */
  static async take(directory: string): Promise<DirectoryLock> {
    const path = join(directory, 'lock');
    const takeover = `${path}.takeover`;
    if (await createLock(path)) return new DirectoryLock(path);
    // One process at a time: of two that find a dead holder, only one takes the lock over.
    if (!(await createLock(takeover))) {
      await rmIfStale(takeover);
      throw inUse(directory);
    }
    try {
      if (await isHeld(path)) throw inUse(directory);
      await rm(path, { force: true });
      if (!(await createLock(path))) throw inUse(directory);
      return new DirectoryLock(path);
    } finally {
      await rm(takeover, { force: true });
    }
  }

  async release(): Promise<void> {
    clearInterval(this.timer);
    await rm(this.path, { force: true });
  }
}

async function createLock(path: string): Promise<boolean> {
  const holder: Holder = {
    host: hostname(),
    pid: process.pid,
    startedAt: await startTimeOf(process.pid),
  };
  try {
    const file = await open(path, 'wx', 0o600);
    await file.writeFile(JSON.stringify(holder));
    await file.close();
    return true;
  } catch (error) {
    if ((error as NodeJS.ErrnoException).code === 'EEXIST') return false;
    throw error;
  }
}

async function isHeld(path: string): Promise<boolean> {
  const holder = await readHolder(path);
  // The file of another machine, or one that is incomplete: only its age can be checked.
  if (holder === undefined || holder.host !== hostname()) return !(await isStale(path));
  if (!isAlive(holder.pid)) return false;
  return holder.startedAt === null || holder.startedAt === (await startTimeOf(holder.pid));
}

async function readHolder(path: string): Promise<Holder | undefined> {
  try {
    const { host, pid, startedAt } = JSON.parse(await readFile(path, 'utf8')) as Holder;
    return Number.isSafeInteger(pid) && pid > 0 ? { host, pid, startedAt } : undefined;
  } catch {
    return undefined;
  }
}

function isAlive(pid: number): boolean {
  try {
    return process.kill(pid, 0);
  } catch (error) {
    return (error as NodeJS.ErrnoException).code === 'EPERM';
  }
}

/** Field 22 of `/proc/<pid>/stat`, counted from the end of the name, which may contain spaces. */
async function startTimeOf(pid: number): Promise<string | null> {
  try {
    const line = await readFile(`/proc/${pid}/stat`, 'utf8');
    return line.slice(line.lastIndexOf(')') + 2).split(' ')[19] ?? null;
  } catch {
    return null;
  }
}

async function isStale(path: string): Promise<boolean> {
  const { mtimeMs } = await stat(path).catch(() => ({ mtimeMs: 0 }));
  return Date.now() - mtimeMs > STALE_AFTER;
}

async function rmIfStale(path: string): Promise<void> {
  if (await isStale(path)) await rm(path, { force: true });
}

function inUse(directory: string): WebhookStoreError {
  return new WebhookStoreError(
    'store_unavailable',
    `Another process uses the embedded database in ${directory}: stop it, give this one a directory of its own, ` +
      'or use PostgresQueue on a PostgreSQL server, which processes can share.',
  );
}
