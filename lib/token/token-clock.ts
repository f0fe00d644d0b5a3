import { FIRST_MILLISECOND_TIMESTAMP } from './webhook-token.constants.js';

/**
 * Where the time comes from: a function like `Date.now`, or one that gives a Date. A number below
 * 1e11 is taken as seconds, the wire's unit; the same border tells a millisecond timestamp in a token.
 */
export type TokenClock = () => number | Date;

/** Reads a clock as seconds since the epoch, fraction included. */
export function readSeconds(clock: TokenClock): number {
  const time = clock();
  const value = typeof time === 'number' ? time : time.getTime();
  return value < FIRST_MILLISECOND_TIMESTAMP ? value : value / 1_000;
}
