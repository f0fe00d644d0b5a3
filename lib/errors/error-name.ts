/** What can be logged of anything that was thrown: its message may quote what it failed on. */
export function errorName(error: unknown): string {
  return error instanceof Error ? error.name : typeof error;
}
