import { QUOTE } from './json-text.js';
import { replacesPrototype } from './strict-json.js';

const SPACE = 0x20;

/**
 * Counts the names of members in a text by their colons: at least as many as there are at all levels, and more only
 * where a string has a colon behind a quote in it. So a count that equals the members of the value is exact,
 * and none of them stands twice, however the names are written.
 *
 * A native search goes from colon to colon, which takes a third of the time of looking at each character
 * (benchmark `token`, 1 kB).
 *
 * @param text - valid JSON
 * @returns `NaN` for a text with room before a colon, which takes a closer look
 */
export function countNames(text: string): number {
  let count = 0;
  for (let colon = text.indexOf(':'); colon !== -1; colon = text.indexOf(':', colon + 1)) {
    const before = text.charCodeAt(colon - 1);
    if (before === QUOTE) count++;
    else if (before <= SPACE) return NaN;
  }
  return count;
}

/**
 * Counts the members of a value at all levels.
 *
 * @param value - what JSON.parse has made; it is walked no deeper than the levels
 * @param cut - a part of the value whose members are looked at and do not count
 * @returns `NaN`, which equals no count, for a value that nests more levels, or has a member that
 *   {@link replacesPrototype}
 */
export function countSoundMembers(value: object, levels: number, cut?: object): number {
  if (value === cut) return Number.isNaN(countSoundMembers(value, levels)) ? NaN : 0;
  if (levels === 0) return NaN;
  let count = 0;
  if (Array.isArray(value)) {
    for (const item of value as unknown[]) {
      if (typeof item === 'object' && item !== null) {
        count += countSoundMembers(item, levels - 1, cut);
      }
    }
    return count;
  }
  for (const name in value) {
    const member = (value as Readonly<Record<string, unknown>>)[name];
    if (replacesPrototype(name, member)) return NaN;
    count++;
    if (typeof member === 'object' && member !== null) {
      count += countSoundMembers(member, levels - 1, cut);
    }
  }
  return count;
}
