/** A point in time, from epoch milliseconds in a parameter or a column. */
export function timeOf(milliseconds: string): string {
  return `to_timestamp(${milliseconds}::float8 / 1000)`;
}

/** Epoch milliseconds of a point in time, as a number in every driver. */
export function millisecondsOf(time: string): string {
  return `round(extract(epoch FROM ${time}) * 1000)::float8`;
}
