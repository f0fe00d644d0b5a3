/** Characters of a name that a stranger wrote and an operator is shown. */
const LONGEST = 100;

/** Shows a name that anybody may have written, unless it would break a line or give orders to a terminal. */
export function quote(name: unknown): string {
  return typeof name === 'string' &&
    name.length <= LONGEST &&
    /^[\p{L}\p{N}\p{P}\p{S} ]+$/u.test(name)
    ? `"${name}"`
    : 'a name that cannot be shown';
}

/** A duration in words. */
export function seconds(value: number): string {
  return `${Math.round(value)} s`;
}

/** How far a moment lies behind the receiver's clock, or before it. */
export function distance(past: number): string {
  return past >= 0 ? `${seconds(past)} ago` : `${seconds(-past)} ahead`;
}

/** How long a token still lives, or is dead. */
export function expiry(left: number): string {
  return left > 0 ? `expires in ${seconds(left)}` : `expired ${seconds(-left)} ago`;
}
