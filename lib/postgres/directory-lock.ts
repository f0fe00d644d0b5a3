import { open, readFile, rm, stat, utimes } from 'node:fs/promises';
import { hostname } from 'node:os';
import { join } from 'node:path';
import { WebhookStoreError } from '../errors/webhook.error.js';

/** Who holds a directory. */
interface Holder {
  readonly host: string;
  readonly pid: number;
  /** When the process began, as its system counts it: a later process may have the same number. */
  readonly began: string | null;
}

/** Milliseconds between two signs of life, for a process on another machine that cannot ask whether this one lives. */
const SIGN_OF_LIFE = 5_000;
const SILENCE = 30_000;

/**
 * Holds a directory for one process: an embedded database that two processes write to loses what was acknowledged.
 *
 * The lock of a process that has died is taken over: at once on the same machine, on another one after half a minute
 * without a sign of life.
 */
export class DirectoryLock {
  private readonly timer: NodeJS.Timeout;

  private constructor(private readonly path: string) {
    this.timer = setInterval(() => {
      const now = new Date();
      utimes(path, now, now).catch(() => {});
    }, SIGN_OF_LIFE).unref();
  }

  /**
   * @param directory - which exists
   * @throws {@link WebhookStoreError} `store_unavailable` where another process holds it
   */
  static async take(directory: string): Promise<DirectoryLock> {
    const path = join(directory, 'lock');
    const takeover = `${path}.takeover`;
    if (await createLock(path)) return new DirectoryLock(path);
    // One at a time, so that two that find a dead holder do not both become its heir.
    if (!(await createLock(takeover))) {
      await rmIfSilent(takeover);
      throw held(directory);
    }
    try {
      if (await isHeld(path)) throw held(directory);
      await rm(path, { force: true });
      if (!(await createLock(path))) throw held(directory);
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
    began: await beginningOf(process.pid),
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
  // One that is not written yet, or was cut off: only its age tells.
  if (holder === undefined || holder.host !== hostname()) return !(await isSilent(path));
  if (!isAlive(holder.pid)) return false;
  return holder.began === null || holder.began === (await beginningOf(holder.pid));
}

async function readHolder(path: string): Promise<Holder | undefined> {
  try {
    const { host, pid, began } = JSON.parse(await readFile(path, 'utf8')) as Holder;
    return Number.isSafeInteger(pid) && pid > 0 ? { host, pid, began } : undefined;
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

/** Field 22 of `/proc/<pid>/stat`, counted behind the name, which may hold anything. */
async function beginningOf(pid: number): Promise<string | null> {
  try {
    const line = await readFile(`/proc/${pid}/stat`, 'utf8');
    return line.slice(line.lastIndexOf(')') + 2).split(' ')[19] ?? null;
  } catch {
    return null;
  }
}

async function isSilent(path: string): Promise<boolean> {
  const { mtimeMs } = await stat(path).catch(() => ({ mtimeMs: 0 }));
  return Date.now() - mtimeMs > SILENCE;
}

async function rmIfSilent(path: string): Promise<void> {
  if (await isSilent(path)) await rm(path, { force: true });
}

function held(directory: string): WebhookStoreError {
  return new WebhookStoreError(
    'store_unavailable',
    `Another process uses the embedded database in ${directory}: stop it, give this one a directory of its own, ` +
      'or use PgBossQueue on a PostgreSQL server, which processes can share.',
  );
}
