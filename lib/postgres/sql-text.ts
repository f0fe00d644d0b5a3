/** A point in time, from epoch milliseconds in a parameter or a column. */
export function timeOf(milliseconds: string): string {
  return `to_timestamp(${milliseconds}::float8 / 1000)`;
}

/** Epoch milliseconds of a point in time, as a number in every driver. */
export function millisecondsOf(time: string): string {
  return `round(extract(epoch FROM ${time}) * 1000)::float8`;
}

/**
 * Replaces `$1`, `$2`, … by literals, for a library or a protocol that takes statements without values.
 *
 * @throws TypeError for a value that is neither a string nor a finite number
 */
export function sqlLiterals(text: string, values: readonly unknown[] = []): string {
  return text.replace(/\$(\d+)/g, (_, index: string) => literal(values[Number(index) - 1]));
}

/**
 * Escaped so that it means the same whatever `standard_conforming_strings` is.
 *
 * @see PostgreSQL, "4.1.2.2. String Constants With C-Style Escapes"
 */
function literal(value: unknown): string {
  if (typeof value === 'number' && Number.isFinite(value)) return `'${value}'`;
  if (typeof value !== 'string') {
    throw new TypeError('Only strings and finite numbers can be written as SQL literals.');
  }
  const quoted = value.replaceAll("'", "''");
  return quoted.includes('\\') ? ` E'${quoted.replaceAll('\\', '\\\\')}'` : `'${quoted}'`;
}
