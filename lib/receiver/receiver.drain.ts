import { Injectable } from '@nestjs/common';

/** Counts the requests that are being handled, so that a shutdown can wait for them. */
@Injectable()
export class ReceiverDrain {
  private readonly abort = new AbortController();
  /** Aborted when the shutdown timeout has passed. */
  readonly signal: AbortSignal = this.abort.signal;
  private inFlight = 0;
  private readonly onClosing = new Set<() => void>();
  private idle: Promise<void> | undefined;
  private onIdle: (() => void) | undefined;

  get closing(): boolean {
    return this.idle !== undefined;
  }

  /** @param onClosing - called if the shutdown begins before the request has left */
  enter(onClosing?: () => void): void {
    this.inFlight++;
    if (onClosing !== undefined) this.onClosing.add(onClosing);
  }

  /** @param onClosing - as passed to {@link enter} */
  leave(onClosing?: () => void): void {
    this.inFlight--;
    if (onClosing !== undefined) this.onClosing.delete(onClosing);
    if (this.inFlight === 0) this.onIdle?.();
  }

  /** Refuses new requests and waits for the running ones. */
  close(): Promise<void> {
    for (const notify of this.onClosing) notify();
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
