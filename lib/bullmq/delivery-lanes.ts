/** Counts what runs to each destination, so that one that answers nobody cannot take every slot. */
export class LaneCounts {
  private readonly running = new Map<string, number>();

  constructor(private readonly perLane: number) {}

  /** @returns whether there was a slot, which is taken now */
  enter(lane: string): boolean {
    const count = this.running.get(lane) ?? 0;
    if (count >= this.perLane) return false;
    this.running.set(lane, count + 1);
    return true;
  }

  leave(lane: string): void {
    const count = this.running.get(lane)! - 1;
    if (count === 0) this.running.delete(lane);
    else this.running.set(lane, count);
  }
}
