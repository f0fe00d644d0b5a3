/** The definition itself: `*` is one segment, `**` is any number of them. Exponential, and obviously right. */
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
