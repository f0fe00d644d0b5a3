/** Characters of a name that is shown. */
const MAX_SHOWN = 100;

/** Quotes a name of unknown origin, unless it is long or has characters that break a line or control a terminal. */
export function quote(name: unknown): string {
  return typeof name === 'string' &&
    name.length <= MAX_SHOWN &&
    /^[\p{L}\p{N}\p{P}\p{S} ]+$/u.test(name)
    ? `"${name}"`
    : 'a name that cannot be shown';
}

export function seconds(value: number): string {
  return `${Math.round(value)} s`;
}

/** Formats how long ago a time was, or how far ahead it is. */
export function distance(past: number): string {
  return past >= 0 ? `${seconds(past)} ago` : `${seconds(-past)} ahead`;
}

/** Formats the time until a token expires, or since it has expired. */
export function expiry(left: number): string {
  return left > 0 ? `expires in ${seconds(left)}` : `expired ${seconds(-left)} ago`;
}
