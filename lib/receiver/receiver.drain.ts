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

  /** Refuses new requests and waits for the running ones. */
  async close(): Promise<void> {
    this.closed = true;
    if (this.inFlight > 0) await new Promise<void>((resolve) => (this.onIdle = resolve));
  }

  /** Aborts the requests that are still running, and returns how many there are. */
  abortRest(): number {
    if (this.inFlight > 0) this.abort.abort();
    return this.inFlight;
  }
}
