import { isDeepStrictEqual } from 'node:util';
import { isObject } from '../token/json.js';

/** Characters of a value in a message. */
const MAX_SHOWN = 200;

/** Describes the first place where two JSON values differ; `undefined` if they are equal. */
export function firstDifference(
  expected: unknown,
  actual: unknown,
  path = 'state',
): string | undefined {
  if (isDeepStrictEqual(expected, actual)) return undefined;
  if (Array.isArray(expected) && Array.isArray(actual)) {
    if (expected.length !== actual.length) {
      return `${path} has ${entries(actual.length)} instead of ${expected.length}: ${show(actual)} instead of ${show(expected)}`;
    }
    for (const [index, item] of expected.entries()) {
      const found = firstDifference(item, actual[index], `${path}[${index}]`);
      if (found !== undefined) return found;
    }
  }
  if (isObject(expected) && isObject(actual)) {
    for (const key of new Set([...Object.keys(expected), ...Object.keys(actual)])) {
      const found = firstDifference(expected[key], actual[key], `${path}.${key}`);
      if (found !== undefined) return found;
    }
  }
  return `${path} is ${show(actual)} instead of ${show(expected)}`;
}

function entries(count: number): string {
  return `${count} ${count === 1 ? 'entry' : 'entries'}`;
}

function show(value: unknown): string {
  const json = JSON.stringify(value) ?? 'missing';
  return json.length > MAX_SHOWN ? `${json.slice(0, MAX_SHOWN)}…` : json;
}

/**
 * Describes how a state changes, independent of how much has accumulated in it: numbers by how much, lists and objects by
 * how many entries are added and removed. Two deliveries of equal effect have equal changes, although their ids differ.
 */
export function changeOf(before: unknown, after: unknown): unknown {
  if (isDeepStrictEqual(before, after)) return undefined;
  if (typeof before === 'number' && typeof after === 'number') {
    // Sums of decimal fractions differ in the last bits.
    return Number((after - before).toPrecision(12));
  }
  if (Array.isArray(before) && Array.isArray(after)) {
    const [added, removed] = [missing(after, before), missing(before, after)];
    // An entry that changes is missing on both sides.
    return added.length === removed.length
      ? removed.map((item, index) => changeOf(item, added[index]))
      : { added: added.length, removed: removed.length };
  }
  if (isObject(before) && isObject(after)) {
    const common = Object.keys(before).filter((key) => Object.hasOwn(after, key));
    const changes = common.map((key) => [key, changeOf(before[key], after[key])] as const);
    return {
      added: Object.keys(after).length - common.length,
      removed: Object.keys(before).length - common.length,
      changes: Object.fromEntries(changes.filter(([, change]) => change !== undefined)),
    };
  }
  return 'replaced';
}

/** The entries of a list that another one lacks; equal entries count as often as they occur. */
function missing(list: readonly unknown[], other: readonly unknown[]): unknown[] {
  const left = other.map((item) => JSON.stringify(item));
  return list.filter((item) => {
    const at = left.indexOf(JSON.stringify(item));
    if (at !== -1) left.splice(at, 1);
    return at === -1;
  });
}
