import { unknownOption } from '../options/option-names.js';
import type { Problems } from '../options/problems.js';
import { flag, isOptions, isPlain, list, type Rule, rule } from '../options/rules.js';
import { isIdentifier } from '../token/identifier.js';

type FilterValue = string | number | boolean | null;

/** What one value has to be; all of its members have to hold. */
interface FilterOperators {
  readonly $eq?: FilterValue;
  readonly $ne?: FilterValue;
  /** 1 to 100 values. */
  readonly $in?: readonly FilterValue[];
  /** 1 to 100 values. */
  readonly $nin?: readonly FilterValue[];
  readonly $gt?: number | string;
  readonly $gte?: number | string;
  readonly $lt?: number | string;
  readonly $lte?: number | string;
  readonly $exists?: boolean;
  readonly $startsWith?: string;
  readonly $and?: readonly FilterCondition[];
  readonly $or?: readonly FilterCondition[];
  readonly $not?: FilterCondition;
}

/** A plain value means `$eq`; a member without `$` is a member of the data. */
type FilterCondition =
  FilterValue | FilterOperators | { readonly [member: string]: FilterCondition };

/**
 * Which events an endpoint gets, by their content; all members have to hold. At most 8 levels and 64 conditions, and strings of at
 * most 255 characters.
 *
 * A list in the data matches if one element meets all comparisons; `$ne`, `$nin` and `$not` of the list itself hold if no element
 * meets the opposite. What is missing, has another type or is bytes cannot be compared: neither a condition nor its opposite
 * matches. `null` equals only `null`.
 *
 * @example
 * ```ts
 * const filter: WebhookEndpointFilter = { data: { total: { $gte: 100 }, customer: { country: { $in: ['DE', 'AT'] } } } };
 * ```
 */
export interface WebhookEndpointFilter {
  /** The event's name. */
  readonly event?: FilterCondition;
  /** The event's data as JSON. */
  readonly data?: FilterCondition;
  readonly $and?: readonly WebhookEndpointFilter[];
  readonly $or?: readonly WebhookEndpointFilter[];
  readonly $not?: WebhookEndpointFilter;
}

const MAX_DEPTH = 8;
const MAX_CONDITIONS = 64;
/** Values that one evaluation compares or visits: lists in the data may be long, and `publish` evaluates many filters. */
const MAX_STEPS = 20_000;

// PostgreSQL stores neither NUL nor lone surrogates, which identifiers exclude.
const isText = (value: unknown): value is string => value === '' || isIdentifier(value);
const isValue = (value: unknown): value is FilterValue =>
  value === null || typeof value === 'boolean' || Number.isFinite(value) || isText(value);

const TEXT_RULE = 'a string of at most 255 characters without control characters';
const VALUE_RULE = `${TEXT_RULE}, a finite number, a boolean or null`;
const VALUE = rule<FilterValue>(isValue, `must be ${VALUE_RULE}`);
const VALUES = list(VALUE, 'must be a list of 1 to 100 values', { min: 1, max: 100 });
const TEXT = rule<string>(isText, `must be ${TEXT_RULE}`);
const ORDERED = rule<string | number>(
  (value) => Number.isFinite(value) || isText(value),
  `must be a finite number, or ${TEXT_RULE}`,
);

const WILDCARD =
  'has "*", which is no wildcard in a filter: set the pattern in "events" of the endpoint, or use $startsWith';

const COMPARISONS: ReadonlyMap<string, Rule<unknown>> = new Map<string, Rule<unknown>>([
  ['$eq', VALUE],
  ['$ne', VALUE],
  ['$in', VALUES],
  ['$nin', VALUES],
  ['$gt', ORDERED],
  ['$gte', ORDERED],
  ['$lt', ORDERED],
  ['$lte', ORDERED],
  ['$exists', flag],
  ['$startsWith', TEXT],
]);

type Place = 'filter' | 'event' | 'data';

const FORMS: Readonly<Record<Place, string>> = {
  filter: 'must be an object such as { data: { total: { $gte: 100 } } }',
  event: `must be ${VALUE_RULE}, or an object of operators`,
  data: `must be ${VALUE_RULE}, or an object of operators and members of the data`,
};

const LOGIC = ['$and', '$or', '$not'];
const OPERATORS = [...COMPARISONS.keys(), ...LOGIC];
const KNOWN: Readonly<Record<Place, readonly string[]>> = {
  filter: ['event', 'data', ...LOGIC],
  event: OPERATORS,
  data: OPERATORS,
};

/** A filter as it is set. */
export const FILTER = filterRule({ allowsWildcards: false });

/** A filter as it is stored: before wildcards were refused, it may have been set with one. */
export const STORED_FILTER = filterRule({ allowsWildcards: true });

function filterRule(options: { readonly allowsWildcards: boolean }): Rule<WebhookEndpointFilter> {
  return (value, at, name) => {
    const reader = new FilterReader(options.allowsWildcards);
    const filter = reader.read(value, { at, name, place: 'filter', depth: 1 });
    at.require(
      reader.conditions <= MAX_CONDITIONS,
      name,
      `has more than ${MAX_CONDITIONS} conditions; use $in for several values, or filter at the receiver`,
    );
    return filter as WebhookEndpointFilter;
  };
}

interface Position {
  readonly at: Problems;
  readonly name: string;
  readonly place: Place;
  readonly depth: number;
}

/** Copies a filter. It stops after too many conditions or problems, because the input may come from a stranger. */
class FilterReader {
  conditions = 0;

  /** @param allowsWildcards - whether the name of an event may be compared with a text that has a `*` */
  constructor(private readonly allowsWildcards: boolean) {}

  read(value: unknown, position: Position): unknown {
    const { at, name, place, depth } = position;
    if (place !== 'filter' && isValue(value)) return this.leaf(VALUE, value, position);
    if (!isOptions(value) || !isPlain(value)) return this.refuse(position, FORMS[place]);
    if (depth > MAX_DEPTH) {
      return this.refuse(position, `is nested more than ${MAX_DEPTH} levels deep; flatten it`);
    }
    const members = Object.entries(value);
    if (members.length === 0) {
      return this.refuse(position, 'has no condition; add one, or leave it out');
    }
    const inside = at.below(name);
    const read: [string, unknown][] = [];
    for (const [member, operand] of members) {
      if (this.conditions > MAX_CONDITIONS) break;
      const shown = /^[\w$]{1,40}$/.test(member)
        ? member
        : `[${JSON.stringify(member.slice(0, 40))}]`;
      const below = { at: inside, name: shown, place, depth: depth + 1 };
      read.push([member, this.member(member, operand, below)]);
    }
    // Keeps a member named __proto__ as an own member.
    return Object.fromEntries(read);
  }

  private member(member: string, operand: unknown, position: Position): unknown {
    const { name, place } = position;
    if (member === '$not') return this.read(operand, position);
    if (member === '$and' || member === '$or') {
      if (!Array.isArray(operand) || operand.length === 0 || operand.length > MAX_CONDITIONS) {
        return this.refuse(position, `must be a list of 1 to ${MAX_CONDITIONS} conditions`);
      }
      return Array.from(operand, (one: unknown, index) =>
        this.read(one, { ...position, name: `${name}[${index}]` }),
      );
    }
    const comparison = place === 'filter' ? undefined : COMPARISONS.get(member);
    if (comparison !== undefined) return this.leaf(comparison, operand, position);
    if (place === 'filter' && (member === 'event' || member === 'data')) {
      return this.read(operand, { ...position, place: member });
    }
    if (place !== 'data' || member.startsWith('$')) {
      return this.refuse(position, unknownOption(member.slice(0, 40), KNOWN[place]));
    }
    if (isText(member)) return this.read(operand, position);
    return this.refuse(position, `must be named by ${TEXT_RULE}`);
  }

  private leaf(
    comparison: Rule<unknown>,
    operand: unknown,
    { at, name, place }: Position,
  ): unknown {
    this.conditions++;
    const isRefused = !this.allowsWildcards && place === 'event' && hasWildcard(operand);
    return isRefused ? at.add(name, WILDCARD) : comparison(operand, at, name);
  }

  private refuse({ at, name }: Position, message: string): undefined {
    this.conditions++;
    return at.add(name, message);
  }
}

function hasWildcard(operand: unknown): boolean {
  return [operand].flat().some((one) => typeof one === 'string' && one.includes('*'));
}

/** `undefined` for what cannot be compared; its opposite is unknown too. */
type Verdict = boolean | undefined;

/** @param data - JSON as it is parsed, or bytes, which match no condition on data */
export function matchesFilter(
  filter: WebhookEndpointFilter,
  event: string,
  data: unknown,
): boolean {
  return new Evaluation().of(filter, { event, data }) === true;
}

class Evaluation {
  private steps = 0;

  of(condition: unknown, value: unknown): Verdict {
    if (++this.steps > MAX_STEPS || ArrayBuffer.isView(value)) return undefined;
    if (typeof condition !== 'object' || condition === null) {
      return this.of({ $eq: condition }, value);
    }
    const members = Object.entries(condition);
    const ofElements = members.filter(([name]) => !OF_WHOLE.has(name));
    const ofWhole = members.filter(([name]) => OF_WHOLE.has(name));
    const verdicts = [
      every(ofWhole, ([name, operand]) => this.ofWhole(name, operand, value)),
      Array.isArray(value) && ofElements.length > 0
        ? some(value, (element) => this.ofElement(ofElements, element))
        : this.ofElement(ofElements, value),
    ];
    return every(verdicts, (verdict) => verdict);
  }

  /** What holds for a list as a whole, and not for one of its elements. */
  private ofWhole(name: string, operand: unknown, value: unknown): Verdict {
    switch (name) {
      case '$and':
        return every(operand as unknown[], (one) => this.of(one, value));
      case '$or':
        return some(operand as unknown[], (one) => this.of(one, value));
      case '$not':
        return not(this.of(operand, value));
      case '$ne':
        return not(this.of({ $eq: operand }, value));
      case '$nin':
        return not(this.of({ $in: operand }, value));
      default:
        return operand === (value !== undefined);
    }
  }

  private ofElement(members: readonly [string, unknown][], value: unknown): Verdict {
    if (++this.steps > MAX_STEPS) return undefined;
    return every(members, ([name, operand]) =>
      name.startsWith('$')
        ? this.ofComparison(name, operand, value)
        : this.ofMember(name, operand, value),
    );
  }

  private ofComparison(name: string, operand: unknown, value: unknown): Verdict {
    this.steps += Array.isArray(operand) ? operand.length : 1;
    return compare(name, operand, value);
  }

  private ofMember(name: string, operand: unknown, value: unknown): Verdict {
    if (value === undefined) return this.of(operand, undefined);
    if (!isOptions(value)) return undefined;
    // Own members only: a prototype has others.
    const isOwn = Object.hasOwn(value, name);
    return this.of(operand, isOwn ? (value as Record<string, unknown>)[name] : undefined);
  }
}

const OF_WHOLE = new Set([...LOGIC, '$ne', '$nin', '$exists']);

function compare(name: string, operand: unknown, value: unknown): Verdict {
  if (name === '$eq') return equal(operand, value);
  if (name === '$in') {
    // Values of another type in the list do not matter if one of them can be compared.
    const comparable = (operand as unknown[]).filter((one) => equal(one, value) !== undefined);
    return comparable.length === 0 ? undefined : comparable.includes(value);
  }
  if (typeof value !== typeof operand) return undefined;
  const [one, other] = [value as string, operand as string];
  switch (name) {
    case '$gt':
      return one > other;
    case '$gte':
      return one >= other;
    case '$lt':
      return one < other;
    case '$lte':
      return one <= other;
    case '$startsWith':
      return one.startsWith(other);
    default:
      return undefined;
  }
}

function equal(operand: unknown, value: unknown): Verdict {
  if (value === undefined) return undefined;
  const isComparable = operand === null || value === null || typeof operand === typeof value;
  return isComparable ? operand === value : undefined;
}

function not(verdict: Verdict): Verdict {
  return verdict === undefined ? undefined : !verdict;
}

function some<T>(items: readonly T[], verdictOf: (item: T) => Verdict): Verdict {
  let verdict: Verdict = false;
  for (const item of items) {
    const one = verdictOf(item);
    if (one === true) return true;
    if (one === undefined) verdict = undefined;
  }
  return verdict;
}

function every<T>(items: readonly T[], verdictOf: (item: T) => Verdict): Verdict {
  return not(some(items, (item) => not(verdictOf(item))));
}
