import { randomUUID } from 'node:crypto';
import { mkdir, open, readdir, unlink } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join, resolve } from 'node:path';
import { WebhookPayloadError } from '../errors/webhook.error.js';
import { SpooledBody } from './request-body.js';

/** How large bodies are stored in files while they are verified and handled. */
export interface WebhookSpoolOptions {
  /** Bytes above which a body goes to a file; default 1048576 (1 MiB). */
  readonly above?: number | undefined;
  /** Directory of the files; created if missing. Default: the system's temporary directory. */
  readonly directory?: string | undefined;
  /** Total bytes of this receiver's files; beyond it, senders get 503. Default 1073741824 (1 GiB). */
  readonly maxBytes?: number | undefined;
}

/** The options with defaults applied. */
interface ResolvedSpoolOptions {
  readonly above: number;
  readonly directory: string | undefined;
  readonly maxBytes: number;
}

/** Bytes that are buffered before a write: of all bodies together, and the minimum and maximum of one body. */
const WRITE_BUFFER = { total: 4_194_304, min: 32_768, max: 262_144 };
const PREFIX = 'nestjs-webhook-token-';
const SUFFIX = '.body';

/**
 * Stores bodies that are too large for memory in temporary files that only this user can read, and limits their total size.
 *
 * A body is available only after all of it is verified. A file is unlinked as soon as it is open, so that a crash leaves
 * nothing behind; on systems that do not allow this, the next start removes it.
 */
export class BodySpool {
  readonly above: number;
  private readonly directory: string;
  private readonly ownDirectory: boolean;
  private readonly maxBytes: number;
  private reserved = 0;
  /** Bodies that have a file or are about to get one. */
  private bodies = 0;
  /** Removals of files that still take space. */
  private readonly removals = new Set<Promise<unknown>>();

  constructor({ above, directory, maxBytes }: ResolvedSpoolOptions) {
    this.above = above;
    this.ownDirectory = directory !== undefined;
    this.directory = directory === undefined ? tmpdir() : resolve(directory);
    this.maxBytes = maxBytes;
  }

  /**
   * Bytes of one body that are buffered before a write. Large writes are cheaper, but everything buffered is digested in
   * one turn of the event loop, so each body gets less when there are many.
   */
  get writeAt(): number {
    const { total, min, max } = WRITE_BUFFER;
    return Math.min(max, Math.max(min, total / (this.bodies + 1)));
  }

  /**
   * Opens a file for one body.
   *
   * @throws {@link WebhookPayloadError} `spool_unavailable`
   */
  async create(): Promise<SpoolFile> {
    this.bodies++;
    const spoolFile = new SpoolFile(this);
    const path = join(this.directory, `${PREFIX}${process.pid}-${randomUUID()}${SUFFIX}`);
    try {
      if (this.ownDirectory) await mkdir(this.directory, { recursive: true, mode: 0o700 });
      const file = await open(path, 'wx+', 0o600);
      const name = await unlink(path).then(
        () => undefined,
        () => path,
      );
      spoolFile.body = new SpooledBody(file, name, (closed) => {
        this.removing(
          closed.finally(() => {
            this.bodies--;
            spoolFile.release();
          }),
        );
      });
      return spoolFile;
    } catch (cause) {
      this.bodies--;
      throw unavailable('no file can be opened in the spool directory', cause);
    }
  }

  /** Removes files of processes that no longer run. */
  async sweep(): Promise<void> {
    const names = await readdir(this.directory).catch((): string[] => []);
    for (const name of names) {
      const pid = ownerOf(name);
      if (pid === undefined || isAlive(pid)) continue;
      await unlink(join(this.directory, name)).catch(() => {});
    }
  }

  /** Registers a pending removal; callers that need the space wait for it. */
  removing(removal: Promise<unknown>): void {
    this.removals.add(removal);
    void removal.finally(() => this.removals.delete(removal));
  }

  /** @hidden */
  async reserve(bytes: number): Promise<void> {
    while (this.reserved + bytes > this.maxBytes) {
      if (this.removals.size === 0) {
        const limit = `${this.maxBytes} bytes (spool.maxBytes)`;
        throw unavailable(`bodies in the spool would exceed ${limit}`);
      }
      await Promise.all(this.removals);
    }
    this.reserved += bytes;
  }

  /** @hidden */
  release(bytes: number): void {
    this.reserved -= bytes;
  }
}

/** The file of one body, and its share of the spool's size. */
export class SpoolFile {
  body!: SpooledBody;
  private reserved = 0;

  constructor(private readonly spool: BodySpool) {}

  /**
   * Reserves space for the whole body.
   *
   * @param bytes - size of the body, as far as it is known
   */
  async reserve(bytes: number): Promise<void> {
    if (bytes <= this.reserved) return;
    await this.spool.reserve(bytes - this.reserved);
    this.reserved = bytes;
  }

  async append(chunks: readonly Buffer[]): Promise<void> {
    try {
      await this.body.append(chunks);
    } catch (cause) {
      throw unavailable('its file cannot be written', cause);
    }
  }

  release(): void {
    this.spool.release(this.reserved);
    this.reserved = 0;
  }
}

function unavailable(why: string, cause?: unknown): WebhookPayloadError {
  return new WebhookPayloadError(
    'spool_unavailable',
    `a body of this size cannot be stored now: ${why}`,
    { cause },
  );
}

function ownerOf(name: string): number | undefined {
  if (!name.startsWith(PREFIX) || !name.endsWith(SUFFIX)) return undefined;
  const pid = Number.parseInt(name.slice(PREFIX.length), 10);
  return Number.isInteger(pid) ? pid : undefined;
}

function isAlive(pid: number): boolean {
  try {
    process.kill(pid, 0);
    return true;
  } catch (error) {
    // EPERM: the process runs under another user.
    return (error as NodeJS.ErrnoException).code === 'EPERM';
  }
}
