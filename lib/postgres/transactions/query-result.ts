/**
 * The rows of a driver's answer: of `{ rows }`, of the list of such that several statements give, or the rows themselves.
 */
export function rowsOf(result: unknown): Record<string, unknown>[] {
  if (Array.isArray(result)) {
    return result.every(hasRows) ? result.flatMap(({ rows }) => rows) : (result as never);
  }
  return hasRows(result) ? result.rows : [];
}

function hasRows(value: unknown): value is { rows: Record<string, unknown>[] } {
  return Array.isArray((value as { rows?: unknown } | null)?.rows);
}
