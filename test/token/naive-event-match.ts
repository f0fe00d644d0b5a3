/** The definition of patterns, `*` for one segment and `**` for any number: exponential, and obviously correct. */
export function matchesNaively(pattern: readonly string[], event: readonly string[]): boolean {
  const [wanted, ...patternRest] = pattern;
  if (wanted === undefined) return event.length === 0;
  const [segment, ...eventRest] = event;
  if (wanted === '**') {
    return (
      matchesNaively(patternRest, event) ||
      (segment !== undefined && matchesNaively(pattern, eventRest))
    );
  }
  return (
    segment !== undefined &&
    (wanted === '*' || wanted === segment) &&
    matchesNaively(patternRest, eventRest)
  );
}
