import { randomUUID } from 'node:crypto';
import { constants, existsSync } from 'node:fs';
import {
  copyFile,
  link,
  readFile,
  readlink,
  rename,
  rm,
  stat,
  utimes,
  writeFile,
} from 'node:fs/promises';
import { hostname } from 'node:os';
import { join } from 'node:path';
import { type CancelWake, repeat, SystemClock, type WebhookClock } from '../clock/webhook-clock.js';
import { WebhookStoreError } from '../errors/webhook.error.js';

/** The process that holds a directory. */
interface Holder {
  /** Differs for each lock. */
  readonly token: string;
  readonly host: string;
  /** In which `pid` counts: two containers may report one host name. `null` where the system has none. */
  readonly pidNamespace: string | null;
  readonly pid: number;
  /** Start time of the process, as its system counts it: a later process may have the same id. */
  readonly startedAt: string | null;
}

/** Milliseconds between two heartbeats, for processes on other machines, which cannot check whether this one is alive. */
const HEARTBEAT = 5_000;
/** Milliseconds without a heartbeat after which a lock is stale. */
const STALE_AFTER = 30_000;
/** Milliseconds after a heartbeat in which no other process can have taken the lock. */
const SAFE_FOR = 20_000;

/**
 * Reserves a directory for one process. Two processes that write to an embedded database lose acknowledged deliveries.
 *
 * The lock of a dead process is taken over: immediately on the same machine, from another one or another container after 30 seconds
 * without a heartbeat.
 */
export class DirectoryLock {
  private readonly path: string;
  private readonly stopBeating: CancelWake;
  /** Epoch milliseconds. */
  private lastBeat: number;

  private constructor(
    private readonly directory: string,
    private readonly token: string,
    private readonly clock: WebhookClock,
  ) {
    this.path = pathIn(directory);
    this.lastBeat = clock.now();
    this.stopBeating = repeat(clock, HEARTBEAT, async () => void (await this.beat()));
  }

  /**
   * @param directory - an existing directory
   * @throws {@link WebhookStoreError} `store_unavailable` if another process holds it
   */
  static async take(
    directory: string,
    clock: WebhookClock = new SystemClock(),
  ): Promise<DirectoryLock> {
    const token = randomUUID();
    if (!(await createLock(pathIn(directory), token))) throw inUse(directory);
    return new DirectoryLock(directory, token, clock);
  }

  async release(): Promise<void> {
    this.stopBeating();
    if (await this.isOwn()) await rm(this.path, { force: true });
  }

  /**
   * Called before each use of the directory: another process takes the lock of one that was suspended for too long.
   *
   * @throws {@link WebhookStoreError} `store_unavailable` if the lock is not this one any more
   */
  async requireOwn(): Promise<void> {
    if (Math.abs(this.clock.now() - this.lastBeat) < SAFE_FOR) return;
    if (await this.beat()) return;
    throw existsSync(this.path) ? takenOver(this.directory) : removed(this.directory);
  }

  async isOwn(): Promise<boolean> {
    return holderIn(await readText(this.path))?.token === this.token;
  }

  /** @returns whether the lock is still this one */
  private async beat(): Promise<boolean> {
    const now = new Date();
    if (!(await this.isOwn())) {
      // Each later use of the directory looks for the lock.
      this.lastBeat = -Infinity;
      return false;
    }
    await utimes(this.path, now, now);
    this.lastBeat = this.clock.now();
    return true;
  }
}

function pathIn(directory: string): string {
  return join(directory, 'lock');
}

async function createLock(path: string, token: string): Promise<boolean> {
  const holder: Holder = {
    token,
    host: hostname(),
    pidNamespace: await pidNamespace(),
    pid: process.pid,
    startedAt: await startTimeOf(process.pid),
  };
  const text = JSON.stringify(holder);
  // Written before it is the lock, which is therefore complete from its beginning.
  const draft = `${path}.${token}`;
  try {
    await writeFile(draft, text, { mode: 0o600 });
    return await placeLock(draft, text, path);
  } finally {
    await rm(draft, { force: true });
  }
}

/** Makes a draft the lock at a path, in place of none or of one whose process is dead. */
async function placeLock(draft: string, text: string, path: string): Promise<boolean> {
  if (await linkLock(draft, path)) return true;
  const found = await readText(path);
  if (found === undefined || (await isHeld(path, found))) return false;
  // One process at a time: of several that find a dead holder, only one takes the lock over.
  const takeover = `${path}.takeover`;
  if (!(await placeLock(draft, text, takeover))) return false;
  if ((await readText(path)) === found) await rename(takeover, path);
  // Another process was faster.
  else await rm(takeover, { force: true });
  return (await readText(path)) === text;
}

async function linkLock(draft: string, path: string): Promise<boolean> {
  try {
    await link(draft, path).catch(async (error: NodeJS.ErrnoException) => {
      if (error.code === 'EEXIST') throw error;
      // Some file systems have no hard links.
      await copyFile(draft, path, constants.COPYFILE_EXCL);
    });
    return true;
  } catch (error) {
    if ((error as NodeJS.ErrnoException).code === 'EEXIST') return false;
    throw error;
  }
}

async function isHeld(path: string, text: string): Promise<boolean> {
  const holder = holderIn(text);
  // The file of another machine or container, or one that is incomplete: only its age can be checked.
  if (
    holder === undefined ||
    holder.host !== hostname() ||
    holder.pidNamespace !== (await pidNamespace())
  ) {
    return !(await isStale(path));
  }
  if (!isAlive(holder.pid)) return false;
  return holder.startedAt === null || holder.startedAt === (await startTimeOf(holder.pid));
}

async function readText(path: string): Promise<string | undefined> {
  return readFile(path, 'utf8').catch(() => undefined);
}

function holderIn(text: string | undefined): Holder | undefined {
  try {
    const holder = JSON.parse(text ?? '') as Holder;
    return Number.isSafeInteger(holder.pid) && holder.pid > 0 ? holder : undefined;
  } catch {
    return undefined;
  }
}

async function pidNamespace(): Promise<string | null> {
  return readlink('/proc/self/ns/pid').catch(() => null);
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

function inUse(directory: string): WebhookStoreError {
  return new WebhookStoreError(
    'store_unavailable',
    `Another process uses the embedded database in ${directory}: stop it, give this one a directory of its own, ` +
      'or use PostgresQueue on a PostgreSQL server, which processes can share.',
  );
}

function takenOver(directory: string): WebhookStoreError {
  return new WebhookStoreError(
    'store_unavailable',
    `This process no longer holds the embedded database in ${directory}: it was suspended, and another process may use it now. Restart this one.`,
  );
}

function removed(directory: string): WebhookStoreError {
  return new WebhookStoreError(
    'store_unavailable',
    `The embedded database in ${directory} was deleted while this process used it, or its lock was: what it has recorded may be lost. Restore the directory, and restart this process.`,
  );
}
