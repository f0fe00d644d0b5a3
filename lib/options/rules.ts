import { type Duration, parseDuration, parseSeconds } from '../clock/duration.js';
import type { WebhookClock } from '../clock/webhook-clock.js';
import { nearestWord, unknownOption } from './option-names.js';
import type { Problems } from './problems.js';

/**
 * Reads one option, or adds a problem. No message contains the value, which may be a secret.
 *
 * @returns what was read; after a problem, a value that no one uses
 */
export interface Rule<T> {
  (value: unknown, at: Problems, name: string): T;
  /** Why the option may be left out, but not be `undefined`. */
  readonly refusesUndefined?: string;
}

export type Read<R> = R extends Rule<infer T> ? T : never;

/** Takes every value for which the condition holds. */
export function rule<T>(holds: (value: unknown) => boolean, message: string): Rule<T> {
  return (value, at, name) => (holds(value) ? value : at.add(name, message)) as T;
}

/** Takes every value: other code checks it. */
export function unchecked<T>(): Rule<T> {
  return (value) => value as T;
}

/** Takes a value unless a function says what is wrong with it. */
export function unless<T>(problemOf: (value: unknown) => string | undefined): Rule<T> {
  return (value, at, name) => {
    const problem = problemOf(value);
    return (problem === undefined ? value : at.add(name, problem)) as T;
  };
}

export function text(message = 'must be a non-empty string'): Rule<string> {
  return rule((value) => typeof value === 'string' && value !== '', message);
}

export const flag: Rule<boolean> = rule(
  (value) => typeof value === 'boolean',
  'must be a boolean, not a string or a number; convert an environment variable first',
);

export function func<T>(form: string): Rule<T> {
  return rule((value) => typeof value === 'function', `must be a function: ${form}`);
}

/** @param unit - `of bytes`, for the message */
export function whole(min: number, max = Number.MAX_SAFE_INTEGER, unit = ''): Rule<number> {
  const of = unit && ` ${unit}`;
  const bounds = max === Number.MAX_SAFE_INTEGER ? `, at least ${min}` : ` from ${min} to ${max}`;
  return rule(
    (value) => Number.isSafeInteger(value) && (value as number) >= min && (value as number) <= max,
    `must be a whole number${of}${bounds}`,
  );
}

/** Takes a number that need not be whole, such as a rate. @param bounds - names them in the message */
export function between(min: number, max: number, bounds: string): Rule<number> {
  return rule(
    (value) => typeof value === 'number' && value >= min && value <= max,
    `must be a number ${bounds}`,
  );
}

export function oneOf<const Word extends string>(...words: readonly Word[]): Rule<Word> {
  const quoted = words.map((word) => `'${word}'`);
  const all = `${quoted.slice(0, -1).join(', ')} or ${quoted.at(-1)}`;
  return unless((value) => {
    if ((words as readonly unknown[]).includes(value)) return undefined;
    const meant = typeof value === 'string' ? nearestWord(value, words) : undefined;
    return `must be ${all}${meant === undefined ? '' : `; did you mean '${meant}'?`}`;
  });
}

/** Takes an object with these methods, so that an instance of another copy of the class is accepted. */
export function instance<T>(kind: string, ...methods: readonly string[]): Rule<T> {
  return rule((value) => hasMethods(value, methods), `must be ${kind}`);
}

export const CLOCK = instance<WebhookClock>(
  'a WebhookClock: an object with now and wakeAt; leave it out for the system clock',
  'now',
  'wakeAt',
);

interface DurationBounds {
  /** The shortest one, as it would be written; default: longer than 0. */
  readonly min?: Duration;
  readonly max?: string;
  /** Warns about numbers below a second, which were most likely meant as seconds. */
  readonly isTimeout?: boolean;
}

/** Reads a duration in milliseconds. */
export function duration({ min, max, isTimeout = false }: DurationBounds = {}): Rule<number> {
  const least = parseDuration(min) ?? Number.MIN_VALUE;
  const most = parseDuration(max) ?? Number.MAX_SAFE_INTEGER;
  const kind = min === undefined ? 'positive duration' : 'duration';
  const bounds = [
    ...(least >= 1 ? [`at least '${min}'`] : []),
    ...(max === undefined ? [] : [`at most '${max}'`]),
  ].join(' and ');
  const message = `must be a ${kind}${bounds && ` of ${bounds}`}, such as '15s' or 15000`;
  return (value, at, name) => {
    const ms = parseDuration(value);
    if (ms === undefined || ms < least || ms > most) return at.add(name, message) as never;
    if (isTimeout && typeof value === 'number' && value > 0 && value < 1_000) {
      at.warn(name, `is ${value} milliseconds; write '${value}s' for seconds`);
    }
    return ms;
  };
}

/** Reads seconds within bounds: a number, or a duration with its unit. */
export function secondsWithin(min: number, max: number, message: string): Rule<number> {
  return (value, at, name) => {
    const read = parseSeconds(value);
    return read !== undefined && read >= min && read <= max
      ? read
      : (at.add(name, message) as never);
  };
}

export const seconds = secondsWithin(
  0,
  Infinity,
  "must be a number of seconds, or a duration with its unit, such as '60s'",
);

/** Years that every database can store. */
const FIRST_TIME = Date.parse('0001-01-01T00:00:00Z');
const LAST_TIME = Date.parse('9999-12-31T23:59:59.999Z');

/** Whether a time, in epoch milliseconds, is in the years 1 to 9999. */
export function isStorableTime(time: unknown): time is number {
  return typeof time === 'number' && time >= FIRST_TIME && time <= LAST_TIME;
}

export const date: Rule<Date> = rule(
  (value) => value instanceof Date && isStorableTime(value.getTime()),
  'must be a valid Date in the years 1 to 9999',
);

/** Reads a Date as epoch milliseconds. */
export const time: Rule<number> = (value, at, name) => date(value, at, name)?.getTime();

export function list<T>(
  item: Rule<T>,
  message: string,
  { min = 0, max = Infinity }: { readonly min?: number; readonly max?: number } = {},
): Rule<readonly T[]> {
  return (value, at, name) => {
    if (!Array.isArray(value) || value.length < min || value.length > max) {
      return at.add(name, message) as never;
    }
    // Array.from, since map would skip a hole.
    return Array.from(value, (one: unknown, index) => item(one, at, `${name}[${index}]`));
  };
}

/** A list whose items differ in a member. */
export function distinct<T>(
  items: Rule<readonly T[]>,
  member: keyof T & string,
  message: string,
): Rule<readonly T[]> {
  return (value, at, name) => {
    // After a problem, the list or an item of it may be undefined.
    const read = items(value, at, name) as readonly (T | undefined)[] | undefined;
    const seen = new Set<unknown>();
    read?.forEach((item, index) => {
      const isRepeated = item?.[member] !== undefined && seen.has(item[member]);
      at.require(!isRepeated, `${name}[${index}].${member}`, message);
      seen.add(item?.[member]);
    });
    return read as readonly T[];
  };
}

/** Reads a value by the first rule if the condition holds, otherwise by the second. */
export function either<T, Other>(
  condition: (value: unknown) => boolean,
  rules: Rule<T>,
  otherwise: Rule<Other>,
): Rule<T | Other> {
  return (value, at, name) => (condition(value) ? rules : otherwise)(value, at, name);
}

export function orNull<T>(one: Rule<T>): Rule<T | null> {
  return (value, at, name) => (value === null ? null : one(value, at, name));
}

export function eachOrNull<Rules extends Readonly<Record<string, Rule<unknown>>>>(
  rules: Rules,
): { readonly [Name in keyof Rules]: Rule<Read<Rules[Name]> | null> } {
  const entries = Object.entries(rules).map(([name, one]) => [name, orNull(one)] as const);
  return Object.fromEntries(entries) as never;
}

export function orFalse<T>(one: Rule<T>): Rule<T | false> {
  return (value, at, name) => (value === false ? false : one(value, at, name));
}

/** May be left out, or be `undefined`. */
export function optional<T>(one: Rule<T>): Rule<T | undefined>;
export function optional<T, const Fallback>(one: Rule<T>, fallback: Fallback): Rule<T | Fallback>;
export function optional<T>(one: Rule<T>, fallback?: unknown): Rule<unknown> {
  return (value, at, name) => (value === undefined ? fallback : one(value, at, name));
}

/** Left out, it is an object without members, so that their defaults apply. */
export function filled<T>(one: Rule<T>): Rule<T> {
  return (value, at, name) => one(value === undefined ? {} : value, at, name);
}

/** Must be set. A misspelt name is reported by itself. */
export function required<T>(
  one: Rule<T>,
  message = 'is undefined; is the environment variable set?',
): Rule<T> {
  return (value, at, name) => {
    if (value !== undefined) return one(value, at, name);
    if (!at.has(name)) at.add(name, message);
    return undefined as never;
  };
}

/** Must be left out. */
export function forbidden(remedy: string): Rule<undefined> {
  return (value, at, name) => (value === undefined ? undefined : at.add(name, remedy));
}

/** May be left out, but must not be `undefined`, because that would widen what the call does. */
export function notUndefined<T>(
  one: Rule<T>,
  remedy = 'leave it out to see everything',
): Rule<T | undefined> {
  const refusesUndefined = `is undefined, which is almost always a bug; ${remedy}`;
  return Object.assign(optional(one), { refusesUndefined });
}

type Shape<Options> = { readonly [Name in keyof Options]-?: Rule<unknown> };
type ReadShape<S> = { readonly [Name in keyof S]: Read<S[Name]> };

interface ObjectForm<Shaped> {
  /** What the options look like; default: all their names. */
  readonly form?: string;
  /** Also refuses unknown members of instances of a class, for options that narrow what a call sees or changes. */
  readonly exact?: boolean;
  /** Checks several members together; `at.has` tells which of them have a problem. */
  readonly across?: (read: Shaped, at: Problems) => void;
}

/**
 * Reads an object with these members, and no others: a misspelt one would silently have no effect.
 *
 * Each member of the interface needs a rule. Its documentation stays at the interface; what is read is inferred.
 *
 * ```ts
 * const OPTIONS = object<WebhookInboxOptions>()({ payload: optional(flag, false), … });
 * ```
 */
export function object<Options extends object>() {
  return <const S extends Shape<Options>>(
    shape: S & Readonly<Record<Exclude<keyof S, keyof Options>, never>>,
    { form, exact = false, across }: ObjectForm<ReadShape<S>> = {},
  ): Rule<ReadShape<S>> => {
    const rules = Object.entries<Rule<unknown>>(shape);
    const names = rules.map(([name]) => name);
    const message = `must be ${form ?? `an object: { ${names.join(', ')} }`}`;
    return (value, at, name) => {
      if (!isOptions(value) || !(isPlain(value) || names.some((one) => one in value))) {
        return at.add(name, message) as never;
      }
      const inside = name === '' ? at : at.below(name);
      if (exact || isPlain(value)) addUnknown(value, names, inside);
      const read: Record<string, unknown> = {};
      for (const [member, one] of rules) {
        const given = (value as Record<string, unknown>)[member];
        if (given === undefined && one.refusesUndefined !== undefined && member in value) {
          inside.add(member, one.refusesUndefined);
        } else {
          read[member] = one(given, inside, member);
        }
      }
      across?.(read as ReadShape<S>, inside);
      return read as ReadShape<S>;
    };
  };
}

function addUnknown(value: object, names: readonly string[], at: Problems): void {
  for (const name in value) {
    if (names.includes(name)) continue;
    // The name may come from a stranger: the message stays short, and on one line.
    const shown = /^\w{1,40}$/.test(name) ? name : `[${JSON.stringify(name.slice(0, 40))}]`;
    at.add(shown, unknownOption(name, names));
    const meant = nearestWord(name, names);
    const isMissing =
      meant !== undefined && (value as Record<string, unknown>)[meant] === undefined;
    if (isMissing) at.meant(meant);
  }
}

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

/** Whether a value is a plain object, and not an instance of a class. */
export function isPlain(options: object): boolean {
  const prototype: unknown = Object.getPrototypeOf(options);
  // Objects of another realm have that realm's Object.prototype, which also ends the chain.
  return prototype === null || Object.getPrototypeOf(prototype) === null;
}
