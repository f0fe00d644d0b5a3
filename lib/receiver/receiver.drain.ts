import { Injectable } from '@nestjs/common';

/** Counts the requests that are being handled, so that a shutdown can wait for them. */
@Injectable()
export class ReceiverDrain {
  private readonly abort = new AbortController();
  /** Aborted when the shutdown timeout has passed. */
  readonly signal: AbortSignal = this.abort.signal;
  private inFlight = 0;
  private idle: Promise<void> | undefined;
  private onIdle: (() => void) | undefined;

  get closing(): boolean {
    return this.idle !== undefined;
  }

  enter(): void {
    this.inFlight++;
  }

  leave(): void {
    this.inFlight--;
    if (this.inFlight === 0) this.onIdle?.();
  }

  /** Refuses new requests and waits for the running ones. */
  close(): Promise<void> {
    this.idle ??= new Promise((resolve) => {
      if (this.inFlight === 0) resolve();
      else this.onIdle = resolve;
    });
    return this.idle;
  }

  /** Aborts the requests that are still running, and returns how many there are. */
  abortRest(): number {
    if (this.inFlight > 0) this.abort.abort();
    return this.inFlight;
  }
}
