/** An item that is due at a time; of two due at the same time, the one with the lower `order` is first. */
export interface Due {
  due: number;
  readonly order: number;
}

/** A priority queue (binary heap) by due time. */
export class DueHeap<Item extends Due> {
  private readonly items: Item[] = [];

  get size(): number {
    return this.items.length;
  }

  peek(): Item | undefined {
    return this.items[0];
  }

  push(item: Item): void {
    this.riseFrom(this.items.push(item) - 1, item);
  }

  pop(): Item | undefined {
    const first = this.items[0];
    const last = this.items.pop();
    if (last !== undefined && this.items.length > 0) this.sinkFromRoot(last);
    return first;
  }

  remove(removed: ReadonlySet<Item>): void {
    const kept = this.items.splice(0).filter((item) => !removed.has(item));
    for (const item of kept) this.push(item);
  }

  /** Restores the order after `item` became due earlier; call it after every such change. */
  raise(item: Item): void {
    const at = this.items.indexOf(item);
    if (at >= 0) this.riseFrom(at, item);
  }

  private riseFrom(start: number, item: Item): void {
    let at = start;
    while (at > 0) {
      const parent = (at - 1) >> 1;
      if (!isBefore(item, this.items[parent]!)) break;
      this.items[at] = this.items[parent]!;
      at = parent;
    }
    this.items[at] = item;
  }

  private sinkFromRoot(item: Item): void {
    const { items } = this;
    let at = 0;
    for (;;) {
      let child = 2 * at + 1;
      if (child >= items.length) break;
      if (child + 1 < items.length && isBefore(items[child + 1]!, items[child]!)) child++;
      if (!isBefore(items[child]!, item)) break;
      items[at] = items[child]!;
      at = child;
    }
    items[at] = item;
  }
}

function isBefore(a: Due, b: Due): boolean {
  return a.due < b.due || (a.due === b.due && a.order < b.order);
}
