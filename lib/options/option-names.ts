/** The message for an option that does not exist. */
export function unknownOption(name: string, known: readonly string[]): string {
  const meant = nearestWord(name, known);
  return meant === undefined
    ? `unknown option; remove it, or use one of ${known.join(', ')}`
    : `unknown option; did you mean "${meant}"?`;
}

/** Returns the word that a misspelt one probably means, if any is close enough. */
export function nearestWord<Word extends string>(
  word: string,
  words: readonly Word[],
): Word | undefined {
  const reach = Math.max(1, Math.floor(word.length / 3));
  const [nearest] = words
    .map((candidate) => ({
      candidate,
      distance: editDistance(word.toLowerCase(), candidate.toLowerCase()),
    }))
    .filter(({ distance }) => distance <= reach)
    .sort((a, b) => a.distance - b.distance);
  return nearest?.candidate;
}

/** Characters to insert, remove or replace, and neighbours to exchange (optimal string alignment). */
function editDistance(from: string, to: string): number {
  let before: number[] = [];
  let row = Array.from({ length: to.length + 1 }, (_, i) => i);
  for (let i = 1; i <= from.length; i++) {
    const next = [i];
    for (let j = 1; j <= to.length; j++) {
      const replaced = row[j - 1]! + (from[i - 1] === to[j - 1] ? 0 : 1);
      const isExchange = from[i - 1] === to[j - 2] && from[i - 2] === to[j - 1];
      const exchanged = i > 1 && j > 1 && isExchange ? before[j - 2]! + 1 : Infinity;
      next.push(Math.min(replaced, exchanged, row[j]! + 1, next[j - 1]! + 1));
    }
    [before, row] = [row, next];
  }
  return row[to.length]!;
}
