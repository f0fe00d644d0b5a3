/** Concurrent calls of `publish`. */
export const CALLERS = 20;
/** Concurrent attempts. */
export const CONCURRENCY = 50;

/** Milliseconds on a clock that the processes of a machine share. */
export function now() {
  return Number(process.hrtime.bigint()) / 1e6;
}
