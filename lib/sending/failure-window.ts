/** How an endpoint has done lately: attempts and failures of the last minutes, in slices that fall out one by one. */
export class FailureWindow {
  private readonly slices: { id: number; attempts: number; failures: number }[] = [];

  /**
   * @param length - milliseconds that are looked back on
   * @param count - slices they are kept in: the window is exact to one of them
   */
  constructor(
    private readonly length: number,
    private readonly count = 10,
  ) {}

  add(failed: boolean, now: number): void {
    const id = Math.floor((now * this.count) / this.length);
    let slice = this.slices.at(-1);
    if (slice?.id !== id) {
      slice = { id, attempts: 0, failures: 0 };
      this.slices.push(slice);
    }
    slice.attempts++;
    if (failed) slice.failures++;
    while (this.slices[0]!.id <= id - this.count) this.slices.shift();
  }

  /** The share of failures; 0 while there were fewer attempts than `least`. */
  share(least: number): number {
    let attempts = 0;
    let failures = 0;
    for (const slice of this.slices) {
      attempts += slice.attempts;
      failures += slice.failures;
    }
    return attempts < least ? 0 : failures / attempts;
  }

  clear(): void {
    this.slices.length = 0;
  }
}
