import { DueHeap, type Due } from './due-heap.js';

/** Something that goes to a destination when its time has come. */
export interface Addressed extends Due {
  readonly destination: string;
}

interface Lane<Item extends Due> {
  running: number;
  readonly held: DueHeap<Item>;
}

/**
 * Bounds how many run at once to one destination: one that answers nobody would else take every slot of the
 * queue, and all others would wait behind it.
 *
 * What is due and finds its destination full is held here, out of the way. Each end of a run gives one back, so
 * that nothing is looked at more often than something starts or ends.
 */
export class DestinationSlots<Item extends Addressed> {
  private readonly lanes = new Map<string, Lane<Item>>();

  constructor(private readonly perDestination: number) {}

  /** @returns whether the item may start; one that may not is held */
  start(item: Item): boolean {
    const lane = this.laneOf(item.destination);
    if (lane.running >= this.perDestination) {
      lane.held.push(item);
      return false;
    }
    lane.running++;
    return true;
  }

  /** @returns the item held for longest, which takes its turn among the others again */
  end(destination: string): Item | undefined {
    const lane = this.laneOf(destination);
    lane.running--;
    const next = lane.held.pop();
    if (lane.running === 0 && lane.held.size === 0) this.lanes.delete(destination);
    return next;
  }

  private laneOf(destination: string): Lane<Item> {
    let lane = this.lanes.get(destination);
    if (lane === undefined) {
      lane = { running: 0, held: new DueHeap() };
      this.lanes.set(destination, lane);
    }
    return lane;
  }
}
