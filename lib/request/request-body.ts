import { Readable } from 'node:stream';

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
