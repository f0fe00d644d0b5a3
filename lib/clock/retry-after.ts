/** Milliseconds, 24 h: no answer can ask for a longer wait. */
export const MAX_RETRY_AFTER = 24 * 3_600_000;

/**
 * Reads a Retry-After: whole seconds, or an HTTP date.
 *
 * @param now - epoch milliseconds, to count a date from
 * @returns milliseconds to wait, at most 24 h; `undefined` if the value is neither
 * @see RFC 9110, sections 10.2.3 and 5.6.7
 */
export function parseRetryAfter(text: string | undefined, now: number): number | undefined {
  const value = text?.trim() ?? '';
  // Very large numbers of seconds are valid too, and capped.
  if (/^\d{1,32}$/.test(value)) return Math.min(Number(value) * 1_000, MAX_RETRY_AFTER);
  const at = parseHttpDate(value);
  return at === undefined ? undefined : Math.min(Math.max(0, at - now), MAX_RETRY_AFTER);
}

/**
 * The preferred form and the two obsolete ones. Date.parse alone would also take `"Mon 5"`, and would read
 * an asctime date in the machine's time zone.
 */
function parseHttpDate(value: string): number | undefined {
  const isGmt =
    /^[A-Z][a-z]{2}, \d{2} [A-Z][a-z]{2} \d{4} \d{2}:\d{2}:\d{2} GMT$/.test(value) ||
    /^[A-Z][a-z]{5,8}, \d{2}-[A-Z][a-z]{2}-\d{2} \d{2}:\d{2}:\d{2} GMT$/.test(value);
  const isAsctime = /^[A-Z][a-z]{2} [A-Z][a-z]{2} [ \d]\d \d{2}:\d{2}:\d{2} \d{4}$/.test(value);
  if (!isGmt && !isAsctime) return undefined;
  const at = Date.parse(isGmt ? value : `${value} GMT`);
  return Number.isNaN(at) ? undefined : at;
}
