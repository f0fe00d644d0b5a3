/** Counts what runs to each destination, so that one that answers nobody cannot take every slot. */
export class LaneSlots {
  private readonly running = new Map<string, number>();

  constructor(private readonly perLane: number) {}

  /** The slots left to those destinations that have something running. */
  get left(): Record<string, number> {
    const left: Record<string, number> = {};
    for (const [lane, count] of this.running) left[lane] = this.perLane - count;
    return left;
  }

  /** Whether some destination has no slot left, so that something due may wait for one. */
  get someFull(): boolean {
    for (const count of this.running.values()) if (count >= this.perLane) return true;
    return false;
  }

  hasRoom(lane: string): boolean {
    return (this.running.get(lane) ?? 0) < this.perLane;
  }

  enter(lane: string): void {
    this.running.set(lane, (this.running.get(lane) ?? 0) + 1);
  }

  leave(lane: string): void {
    const count = this.running.get(lane)! - 1;
    if (count === 0) this.running.delete(lane);
    else this.running.set(lane, count);
  }
}
