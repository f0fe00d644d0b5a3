import { FIRST_MILLISECOND_TIMESTAMP } from './webhook-token.constants.js';

/**
 * The current time: a function like `Date.now`, or one that returns a Date. A number below 1e11 is read as seconds, the
 * unit of the claims; a larger one as milliseconds.
 */
export type TokenClock = () => number | Date;

/** Reads a clock as seconds since the epoch, with the fraction. */
export function readSeconds(clock: TokenClock): number {
  const time = clock();
  const value = typeof time === 'number' ? time : time.getTime();
  return value < FIRST_MILLISECOND_TIMESTAMP ? value : value / 1_000;
}
