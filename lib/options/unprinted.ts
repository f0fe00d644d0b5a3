import { inspect } from 'node:util';

/**
 * Hides the members of an object from `util.inspect`, and so from `console.log` and most loggers.
 *
 * @param label - what is printed in their place
 * @returns the object itself
 */
export function unprinted<T extends object>(value: T, label: string): T {
  return Object.defineProperty(value, inspect.custom, { value: () => label });
}

/** Copies headers whose values may be credentials: only their names are printed. */
export function unprintedHeaders(
  headers: Readonly<Record<string, string>>,
): Readonly<Record<string, string>> {
  return unprinted({ ...headers }, `[headers: ${Object.keys(headers).join(', ')}]`);
}
