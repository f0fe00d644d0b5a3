const CHUNK_BITS = 12;
const CHUNK_MASK = (1 << CHUNK_BITS) - 1;

/** Values by slot number, in chunks made when they are first needed: growing never copies what is there. */
export class SlotValues<Value> {
  private readonly chunks: (Value | undefined)[][] = [];

  get(slot: number): Value | undefined {
    return this.chunks[slot >>> CHUNK_BITS]?.[slot & CHUNK_MASK];
  }

  set(slot: number, value: Value | undefined): void {
    const chunk = (this.chunks[slot >>> CHUNK_BITS] ??= new Array<Value | undefined>(
      CHUNK_MASK + 1,
    ).fill(undefined));
    chunk[slot & CHUNK_MASK] = value;
  }
}
