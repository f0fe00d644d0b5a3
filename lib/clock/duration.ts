/** Milliseconds, or a number with a unit: `'250ms'`, `'15s'`, `'5m'`, `'24h'`, `'7d'`. */
export type Duration = number | string;

/** Units in milliseconds. */
export const SECOND = 1_000;
export const MINUTE = 60 * SECOND;
export const HOUR = 60 * MINUTE;
export const DAY = 24 * HOUR;

const UNITS: Readonly<Record<string, number>> = {
  ms: 1,
  s: SECOND,
  m: MINUTE,
  h: HOUR,
  d: DAY,
};

/** @returns milliseconds, or `undefined` if the value is not a duration of at least 0 */
export function parseDuration(duration: unknown): number | undefined {
  if (typeof duration === 'number') {
    return Number.isFinite(duration) && duration >= 0 ? duration : undefined;
  }
  if (typeof duration !== 'string') return undefined;
  const [, amount, unit] = /^(\d{1,12}(?:\.\d{1,6})?)\s?(ms|s|m|h|d)$/.exec(duration) ?? [];
  return amount === undefined || unit === undefined ? undefined : Number(amount) * UNITS[unit]!;
}

/**
 * Reads a duration of an option whose numbers are seconds, and that may be left out.
 *
 * @returns seconds; `NaN` if it is not a duration
 */
export function secondsOf(duration: Duration | undefined, fallback: number): number {
  return duration === undefined ? fallback : (parseSeconds(duration) ?? Number.NaN);
}

/**
 * Reads a duration of an option whose numbers are seconds.
 *
 * @returns seconds, or `undefined` if the value is not a duration of at least 0
 */
export function parseSeconds(duration: unknown): number | undefined {
  const parsed = parseDuration(duration);
  return typeof duration === 'string' && parsed !== undefined ? parsed / 1_000 : parsed;
}
