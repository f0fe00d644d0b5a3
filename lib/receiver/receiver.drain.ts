import { Injectable } from '@nestjs/common';

/** Counts the requests that are being handled, so that a shutdown can wait for them. */
@Injectable()
export class ReceiverDrain {
  private readonly abort = new AbortController();
  /** Aborted when the shutdown timeout has passed. */
  readonly signal: AbortSignal = this.abort.signal;
  private inFlight = 0;
  private closed = false;
  private onIdle: (() => void) | undefined;

  /** Whether new requests are refused. */
  get closing(): boolean {
    return this.closed;
  }

  enter(): void {
    this.inFlight++;
  }

  leave(): void {
    this.inFlight--;
    if (this.inFlight === 0) this.onIdle?.();
  }

  /**
   * Refuses new requests and waits for the running ones.
   *
   * @param deadline - settles when waiting ends; the signal of requests that still run is then aborted
   * @returns how many requests were still running
   */
  async close(deadline: Promise<void>): Promise<number> {
    this.closed = true;
    if (this.inFlight > 0) {
      const idle = new Promise<void>((resolve) => (this.onIdle = resolve));
      await Promise.race([idle, deadline]);
    }
    if (this.inFlight > 0) this.abort.abort();
    return this.inFlight;
  }
}
