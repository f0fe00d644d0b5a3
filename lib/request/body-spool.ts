import { randomUUID } from 'node:crypto';
import { once } from 'node:events';
import { readSync } from 'node:fs';
import { type FileHandle, mkdir, open, readdir, unlink } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join, resolve } from 'node:path';
import { finished, Readable } from 'node:stream';
import { WebhookPayloadError } from '../errors/webhook.error.js';
import type { RequestBody } from './body.js';

/** How large bodies are stored in files while they are verified and handled. */
export interface WebhookSpoolOptions {
  /** Bytes above which a body goes to a file; default 1048576 (1 MiB). */
  readonly above?: number | undefined;
  /** Directory of the files; created if missing. Default: the system's temporary directory. */
  readonly directory?: string | undefined;
  /** Total bytes of this receiver's files, at least `maxBodyBytes`; beyond it, senders get 503. Default 1073741824 (1 GiB). */
  readonly maxBytes?: number | undefined;
}

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
  async create(): Promise<SpooledBody> {
    this.bodies++;
    const path = join(this.directory, `${PREFIX}${process.pid}-${randomUUID()}${SUFFIX}`);
    try {
      if (this.ownDirectory) await mkdir(this.directory, { recursive: true, mode: 0o700 });
      const file = await open(path, 'wx+', 0o600);
      const name = await unlink(path).then(
        () => undefined,
        () => path,
      );
      return new SpooledBody(this, file, name);
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
  async reserve(bytes: number, discarded: AbortSignal): Promise<void> {
    while (this.reserved + bytes > this.maxBytes) {
      // Its own removal, which waits for this, would be waited for.
      if (discarded.aborted) throw unavailable('its request has ended');
      if (this.removals.size === 0) {
        const limit = `${this.maxBytes} bytes (spool.maxBytes)`;
        throw unavailable(`bodies in the spool would exceed ${limit}`);
      }
      await Promise.race([Promise.all(this.removals), once(discarded, 'abort')]);
    }
    this.reserved += bytes;
  }

  /** @hidden */
  release(bytes: number): void {
    this.bodies--;
    this.reserved -= bytes;
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

/** Bytes of one read of a stream. */
const CHUNK = 65_536;

/**
 * A body in a temporary file, with its share of the spool's size.
 *
 * The file is already unlinked if the system allows that (not on Windows), so it disappears with the process, even after
 * a crash.
 */
export class SpooledBody implements RequestBody {
  private reserved = 0;
  private written = 0;
  private readers = 0;
  private removed = false;
  private readonly streams = new Set<Readable>();

  /** @param path - path of the file; `undefined` if it is unlinked */
  constructor(
    private readonly spool: BodySpool,
    private readonly file: FileHandle,
    private readonly path: string | undefined,
  ) {}

  get length(): number {
    return this.written;
  }

  /**
   * Reserves space for the whole body.
   *
   * @param bytes - size of the body, as far as it is known
   * @param discarded - ends the wait for space
   */
  async reserve(bytes: number, discarded: AbortSignal): Promise<void> {
    if (bytes <= this.reserved) return;
    await this.spool.reserve(bytes - this.reserved, discarded);
    this.reserved = bytes;
  }

  async append(chunks: readonly Buffer[]): Promise<void> {
    let rest = chunks;
    try {
      while (rest.length > 0) {
        const { bytesWritten } = await this.file.writev(rest, this.written);
        this.written += bytesWritten;
        rest = skip(rest, bytesWritten);
      }
    } catch (cause) {
      throw unavailable('its file cannot be written', cause);
    }
  }

  async read(): Promise<Buffer> {
    return this.whileOpen(async () => {
      const bytes = Buffer.allocUnsafe(this.written);
      for (let at = 0; at < bytes.length;) {
        const { bytesRead } = await this.file.read(bytes, at, bytes.length - at, at);
        if (bytesRead === 0) throw truncated();
        at += bytesRead;
      }
      return bytes;
    });
  }

  readNow(): Buffer {
    this.requireOpen();
    const bytes = Buffer.allocUnsafe(this.written);
    for (let at = 0; at < bytes.length;) {
      const count = readSync(this.file.fd, bytes, at, bytes.length - at, at);
      if (count === 0) throw truncated();
      at += count;
    }
    return bytes;
  }

  stream(): Readable {
    this.requireOpen();
    this.readers++;
    const stream = this.readable();
    this.streams.add(stream);
    finished(stream, () => {
      this.streams.delete(stream);
      this.endRead();
    });
    // A destination that fails leaves it without a consumer.
    stream.on('removeListener', () => setImmediate(() => this.destroyUnread(stream)));
    return stream;
  }

  remove(): void {
    if (this.removed) return;
    this.removed = true;
    for (const stream of this.streams) this.destroyUnread(stream);
    if (this.readers === 0) this.close();
  }

  /** After the removal, a stream that no one reads may never be read, and would keep the file open. */
  private destroyUnread(stream: Readable): void {
    if (this.removed && !isRead(stream)) stream.destroy(alreadyRemoved());
  }

  /** Not the file handle's own stream: its end would close the file for the others. */
  private readable(): Readable {
    return Readable.from(this.chunks(), { objectMode: false, highWaterMark: CHUNK });
  }

  private async *chunks(): AsyncGenerator<Buffer> {
    for (let at = 0; at < this.written;) {
      const chunk = Buffer.allocUnsafe(CHUNK);
      const { bytesRead } = await this.file.read(chunk, 0, CHUNK, at);
      if (bytesRead === 0) throw truncated();
      at += bytesRead;
      yield chunk.subarray(0, bytesRead);
    }
  }

  private async whileOpen<T>(read: () => Promise<T>): Promise<T> {
    this.requireOpen();
    this.readers++;
    try {
      return await read();
    } finally {
      this.endRead();
    }
  }

  private requireOpen(): void {
    if (this.removed) throw alreadyRemoved();
  }

  private endRead(): void {
    this.readers--;
    if (this.removed && this.readers === 0) this.close();
  }

  private close(): void {
    const { file, path, spool } = this;
    const closed = file.close().then(async () => (path === undefined ? undefined : unlink(path)));
    // A failure has no one to report to; the next start removes a file that is left.
    spool.removing(closed.catch(() => {}).finally(() => spool.release(this.reserved)));
  }
}

function isRead(stream: Readable): boolean {
  return (
    stream.readableFlowing === true ||
    stream.listenerCount('data') > 0 ||
    stream.listenerCount('readable') > 0
  );
}

function alreadyRemoved(): Error {
  return new Error(
    'The body of the webhook was removed after the event was handled: read event.stream(), event.rawBody() or event.data before the handler ends.',
  );
}

function truncated(): Error {
  return new Error('The file of the webhook body was truncated.');
}

function skip(chunks: readonly Buffer[], count: number): readonly Buffer[] {
  let left = count;
  let index = 0;
  while (index < chunks.length && left >= chunks[index]!.length) left -= chunks[index++]!.length;
  const rest = chunks.slice(index);
  return left === 0 ? rest : [rest[0]!.subarray(left), ...rest.slice(1)];
}
