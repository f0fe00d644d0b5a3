import type { ConfigurationFaults } from './configuration-faults.js';

/** What one option may be. */
export interface OptionRule {
  holds(value: unknown): boolean;
  /** What is wrong, and the remedy. */
  readonly message: string;
}

/** A rule for each option; `undefined` if the code that resolves the option checks its value. */
export type OptionShape<Options> = Readonly<Record<keyof Options, OptionRule | undefined>>;

/**
 * Checks options whose types may not have been checked: from JavaScript, from JSON, from the environment.
 *
 * Unknown options are faults, since a misspelt one would silently have no effect.
 *
 * @returns the options that are well-formed; the others are absent
 */
export function checkShape<Options extends object>(
  options: object,
  shape: OptionShape<Options>,
  faults: ConfigurationFaults,
): Partial<Options> {
  for (const [name, message] of unknownOptions(options, shape)) faults.add(name, message);
  const fit: Record<string, unknown> = {};
  for (const name of Object.keys(shape)) {
    const value = (options as Record<string, unknown>)[name];
    if (value === undefined) continue;
    const rule = shape[name as keyof Options];
    if (rule === undefined || rule.holds(value)) fit[name] = value;
    else faults.add(name, rule.message);
  }
  return fit as Partial<Options>;
}

/**
 * Finds options that do not exist.
 *
 * @param known - an object with a member for each option that does
 * @returns each name with its message
 */
export function unknownOptions(options: object, known: object): [name: string, message: string][] {
  // An instance of the application's own class may have other members.
  if (!isPlain(options)) return [];
  return Object.keys(options)
    .filter((name) => !Object.hasOwn(known, name))
    .map((name) => [name, unknownOption(name, Object.keys(known))]);
}

/** The options that misspelt ones probably mean. */
export function misspeltOptions(options: object, known: object): string[] {
  const names = Object.keys(known);
  return Object.keys(options)
    .filter((name) => !Object.hasOwn(known, name))
    .flatMap((name) => nearestWord(name, names) ?? []);
}

/** The message for an option that does not exist. */
export function unknownOption(name: string, known: readonly string[]): string {
  const meant = nearestWord(name, known);
  return meant === undefined
    ? `unknown option; remove it, or use one of ${known.join(', ')}`
    : `unknown option; did you mean "${meant}"?`;
}

/** Whether a value is a plain object, and not an instance of a class. */
export function isPlain(options: object): boolean {
  const prototype: unknown = Object.getPrototypeOf(options);
  // Objects of another realm have that realm's Object.prototype, which also ends the chain.
  return prototype === null || Object.getPrototypeOf(prototype) === null;
}

/** Returns the word that a misspelt one probably means, if any is close enough. */
export function nearestWord(word: string, words: readonly string[]): string | undefined {
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

/** Characters to insert, remove or replace (Levenshtein distance). */
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

/** Whether a value is an object that can hold options. */
export function isOptions(value: unknown): value is object {
  return typeof value === 'object' && value !== null && !Array.isArray(value);
}

/** Whether a value has these methods, its own or inherited. */
export function hasMethods(value: unknown, names: readonly string[]): boolean {
  return (
    isOptions(value) &&
    names.every((name) => typeof (value as Record<string, unknown>)[name] === 'function')
  );
}
