import type { ConfigurationFaults } from './configuration-faults.js';

/** Finds the word that was meant by a misspelt one; none where all are far away. */
function nearestWord(word: string, words: readonly string[]): string | undefined {
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

/** Characters to insert, remove or replace (Levenshtein). */
function editDistance(from: string, to: string): number {
  let row = Array.from({ length: to.length + 1 }, (_, i) => i);
  for (let i = 1; i <= from.length; i++) {
    const next = [i];
    for (let j = 1; j <= to.length; j++) {
      const replaced = row[j - 1]! + (from[i - 1] === to[j - 1] ? 0 : 1);
      next.push(Math.min(replaced, row[j]! + 1, next[j - 1]! + 1));
    }
    row = next;
  }
  return row[to.length]!;
}

/** What one option may be. */
export interface OptionRule {
  holds(value: unknown): boolean;
  /** Fault and remedy. */
  readonly message: string;
}

/** A rule for each option; `undefined` where whoever fills the option checks it. */
export type OptionShape<Options> = {
  readonly [Name in keyof Options]-?: OptionRule | undefined;
};

/**
 * Checks options that came without their types' protection: from JavaScript, from JSON, from the environment.
 *
 * @returns the options that are shaped as they must be; the others are absent
 */
export function checkShape<Options extends object>(
  options: object,
  shape: OptionShape<Options>,
  faults: ConfigurationFaults,
): Partial<Options> {
  const names = Object.keys(shape);
  checkNames(options, names, faults);
  const fit: Record<string, unknown> = {};
  for (const name of names) {
    const value = (options as Record<string, unknown>)[name];
    if (value === undefined) continue;
    const rule = shape[name as keyof Options];
    if (rule === undefined || rule.holds(value)) fit[name] = value;
    else faults.add(name, rule.message);
  }
  return fit as Partial<Options>;
}

function checkNames(options: object, names: readonly string[], faults: ConfigurationFaults): void {
  // An instance of the application's own class may keep there what it likes.
  if (!isPlain(options)) return;
  for (const name of Object.keys(options)) {
    if (names.includes(name)) continue;
    const meant = nearestWord(name, names);
    faults.add(
      name,
      meant === undefined
        ? `is no option here: remove it, or use one of ${names.join(', ')}`
        : `is no option here: did you mean ${meant}?`,
    );
  }
}

function isPlain(options: object): boolean {
  const prototype: unknown = Object.getPrototypeOf(options);
  // Another realm has an Object of its own, whose prototype ends the chain just so.
  return prototype === null || Object.getPrototypeOf(prototype) === null;
}

/** Whether a value has options at all. */
export function isOptions(value: unknown): value is object {
  return typeof value === 'object' && value !== null && !Array.isArray(value);
}

/** Whether a value has these methods, of its own or of its class. */
export function hasMethods(value: unknown, names: readonly string[]): boolean {
  return (
    isOptions(value) &&
    names.every((name) => typeof (value as Record<string, unknown>)[name] === 'function')
  );
}
