/** Concurrent calls of `publish`. */
export const CALLERS = 20;
/** Concurrent attempts. */
export const CONCURRENCY = 50;

/** Senders by hand, with what they sign and send with. The first is the baseline. */
export const CLIENTS = { 'by hand': 'node-http-jose', 'by hand, HttpService': 'jose' };

/** Milliseconds on a clock that the processes of a machine share. */
export function now() {
  return Number(process.hrtime.bigint()) / 1e6;
}
