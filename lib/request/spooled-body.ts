import { readSync } from 'node:fs';
import { type FileHandle, unlink } from 'node:fs/promises';
import { finished, Readable } from 'node:stream';

/** A request's body, to be read any number of times until it is removed. */
export interface RequestBody {
  /** Bytes. */
  readonly length: number;
  /** The whole of it in memory. */
  read(): Promise<Buffer>;
  /** As {@link read}, holding the event loop meanwhile. */
  readNow(): Buffer;
  /** From its beginning, as Buffers; every call starts anew. */
  stream(): Readable;
  /** Gives up what it takes, once nobody reads from it any more. */
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
    // The garbage collector's affair.
  }
}

/** Of a request without one. */
export const NO_BODY: RequestBody = new MemoryBody(Buffer.alloc(0));

/** Bytes that a stream reads at once. */
const CHUNK = 65_536;

/**
 * A body in a temporary file.
 *
 * The file has no name any more where the system allows that (not on Windows): it is then gone with the process, however
 * that ends.
 */
export class SpooledBody implements RequestBody {
  private written = 0;
  private reading = 0;
  private removed = false;
  private readonly streams = new Set<Readable>();

  /**
   * @param path - of the file; `undefined` where it has no name any more
   * @param onRemoved - told once, when its room on the disk is free again
   */
  constructor(
    private readonly file: FileHandle,
    private readonly path: string | undefined,
    private readonly onRemoved: () => void,
  ) {}

  get length(): number {
    return this.written;
  }

  /** Writes what has come in behind the rest. */
  async append(chunks: readonly Buffer[]): Promise<void> {
    let rest = chunks;
    while (rest.length > 0) {
      const { bytesWritten } = await this.file.writev(rest, this.written);
      this.written += bytesWritten;
      rest = behind(rest, bytesWritten);
    }
  }

  async read(): Promise<Buffer> {
    return this.whileOpen(async () => {
      const bytes = Buffer.allocUnsafe(this.written);
      for (let at = 0; at < bytes.length;) {
        const { bytesRead } = await this.file.read(bytes, at, bytes.length - at, at);
        if (bytesRead === 0) throw cutShort();
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
      if (count === 0) throw cutShort();
      at += count;
    }
    return bytes;
  }

  stream(): Readable {
    this.requireOpen();
    this.reading++;
    const stream = this.readable();
    this.streams.add(stream);
    finished(stream, () => {
      this.streams.delete(stream);
      this.leave();
    });
    return stream;
  }

  remove(): void {
    if (this.removed) return;
    this.removed = true;
    // Whoever has not begun by now may never do, and the file would be kept for that.
    for (const stream of this.streams) if (!isBegun(stream)) stream.destroy(removedBefore());
    if (this.reading === 0) this.close();
  }

  /** Not the file's own stream, whose end closes the file for all the others. */
  private readable(): Readable {
    let at = 0;
    const next = async (): Promise<Buffer | null> => {
      const chunk = Buffer.allocUnsafe(CHUNK);
      const { bytesRead } = await this.file.read(chunk, 0, CHUNK, at);
      if (bytesRead === 0 && at < this.written) throw cutShort();
      at += bytesRead;
      return bytesRead === 0 ? null : chunk.subarray(0, bytesRead);
    };
    const give = async (stream: Readable): Promise<void> => {
      try {
        stream.push(await next());
      } catch (error) {
        stream.destroy(error as Error);
      }
    };
    return new Readable({
      highWaterMark: CHUNK,
      read() {
        void give(this);
      },
    });
  }

  private async whileOpen<T>(read: () => Promise<T>): Promise<T> {
    this.requireOpen();
    this.reading++;
    try {
      return await read();
    } finally {
      this.leave();
    }
  }

  private requireOpen(): void {
    if (this.removed) throw removedBefore();
  }

  private leave(): void {
    this.reading--;
    if (this.removed && this.reading === 0) this.close();
  }

  private close(): void {
    const { file, path, onRemoved } = this;
    // Nobody can be told of a failure here; what is left behind goes at the next start.
    void file
      .close()
      .then(async () => (path === undefined ? undefined : unlink(path)))
      .catch(() => {})
      .finally(onRemoved);
  }
}

/** Whether anybody has attached to a stream. */
function isBegun(stream: Readable): boolean {
  return (
    stream.readableDidRead ||
    stream.readableFlowing !== null ||
    stream.listenerCount('readable') > 0
  );
}

function removedBefore(): Error {
  return new Error(
    'The body of the webhook is removed when its handling has ended: read event.stream(), event.rawBody() or event.data before that.',
  );
}

function cutShort(): Error {
  return new Error('The file that held the body of the webhook was cut short.');
}

/** What is left of the pieces behind so many bytes. */
function behind(chunks: readonly Buffer[], count: number): readonly Buffer[] {
  let skip = count;
  let index = 0;
  while (index < chunks.length && skip >= chunks[index]!.length) skip -= chunks[index++]!.length;
  const rest = chunks.slice(index);
  return skip === 0 ? rest : [rest[0]!.subarray(skip), ...rest.slice(1)];
}
