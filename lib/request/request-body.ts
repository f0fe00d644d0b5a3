import { readSync } from 'node:fs';
import { type FileHandle, unlink } from 'node:fs/promises';
import { finished, Readable } from 'node:stream';

/** A request's body. It can be read any number of times until it is removed. */
export interface RequestBody {
  /** In bytes. */
  readonly length: number;
  /** Reads all of it into memory. */
  read(): Promise<Buffer>;
  /** Like {@link read}, but blocks the event loop. */
  readNow(): Buffer;
  /** Streams it as Buffers; every call starts at the beginning. */
  stream(): Readable;
  /** Releases its memory or file, after reads in progress have ended. */
  remove(): void;
}

/** A body in memory. */
export class MemoryBody implements RequestBody {
  constructor(private readonly bytes: Buffer) {}

  get length(): number {
    return this.bytes.length;
  }

  async read(): Promise<Buffer> {
    return this.bytes;
  }

  readNow(): Buffer {
    return this.bytes;
  }

  stream(): Readable {
    return Readable.from(this.bytes.length === 0 ? [] : [this.bytes], { objectMode: false });
  }

  remove(): void {
    // Garbage collection frees the memory.
  }
}

/** The body of a request without one. */
export const NO_BODY: RequestBody = new MemoryBody(Buffer.alloc(0));

/** Bytes of one read of a stream. */
const CHUNK = 65_536;

/**
 * A body in a temporary file.
 *
 * The file is already unlinked if the system allows that (not on Windows), so it disappears with the process, even after
 * a crash.
 */
export class SpooledBody implements RequestBody {
  private written = 0;
  private readers = 0;
  private removed = false;
  private readonly streams = new Set<Readable>();

  /**
   * @param path - path of the file; `undefined` if it is unlinked
   * @param onRemove - called once, with a promise that resolves when the disk space is free
   */
  constructor(
    private readonly file: FileHandle,
    private readonly path: string | undefined,
    private readonly onRemove: (closed: Promise<unknown>) => void,
  ) {}

  get length(): number {
    return this.written;
  }

  /** Writes chunks at the end. */
  async append(chunks: readonly Buffer[]): Promise<void> {
    let rest = chunks;
    while (rest.length > 0) {
      const { bytesWritten } = await this.file.writev(rest, this.written);
      this.written += bytesWritten;
      rest = skip(rest, bytesWritten);
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
    return stream;
  }

  remove(): void {
    if (this.removed) return;
    this.removed = true;
    // A stream that is not being read by now may never be, and would keep the file open.
    for (const stream of this.streams) if (!isRead(stream)) stream.destroy(alreadyRemoved());
    if (this.readers === 0) this.close();
  }

  /** Not the file handle's own stream: its end would close the file for the others. */
  private readable(): Readable {
    let at = 0;
    const next = async (): Promise<Buffer | null> => {
      const chunk = Buffer.allocUnsafe(CHUNK);
      const { bytesRead } = await this.file.read(chunk, 0, CHUNK, at);
      if (bytesRead === 0 && at < this.written) throw truncated();
      at += bytesRead;
      return bytesRead === 0 ? null : chunk.subarray(0, bytesRead);
    };
    const push = async (stream: Readable): Promise<void> => {
      try {
        stream.push(await next());
      } catch (error) {
        stream.destroy(error as Error);
      }
    };
    return new Readable({
      highWaterMark: CHUNK,
      read() {
        void push(this);
      },
    });
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
    const { file, path, onRemove } = this;
    const closed = file.close().then(async () => (path === undefined ? undefined : unlink(path)));
    // A failure has no one to report to; the next start removes a file that is left.
    onRemove(closed.catch(() => {}));
  }
}

/** Whether a stream has a consumer. */
function isRead(stream: Readable): boolean {
  return (
    stream.readableDidRead ||
    stream.readableFlowing !== null ||
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

/** The chunks without their first bytes. */
function skip(chunks: readonly Buffer[], count: number): readonly Buffer[] {
  let left = count;
  let index = 0;
  while (index < chunks.length && left >= chunks[index]!.length) left -= chunks[index++]!.length;
  const rest = chunks.slice(index);
  return left === 0 ? rest : [rest[0]!.subarray(left), ...rest.slice(1)];
}
