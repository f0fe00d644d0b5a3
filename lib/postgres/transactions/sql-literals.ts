/**
 * Writes the values into a statement in the place of `$1`, `$2`, for a library that takes statements without values.
 *
 * @throws TypeError for a value that is neither a text nor a number
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
  if (typeof value !== 'string') throw new TypeError('Only texts and numbers have a literal.');
  const quoted = value.replaceAll("'", "''");
  return quoted.includes('\\') ? ` E'${quoted.replaceAll('\\', '\\\\')}'` : `'${quoted}'`;
}
