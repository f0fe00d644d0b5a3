import * as option from '../options/rules.js';

/** A point in time, from epoch milliseconds in a parameter or a column. */
export function timeOf(milliseconds: string): string {
  return `to_timestamp(${milliseconds}::float8 / 1000)`;
}

/** Epoch milliseconds of a point in time, as a number in every driver. */
export function millisecondsOf(time: string): string {
  return `round(extract(epoch FROM ${time}) * 1000)::float8`;
}

/** The time: of the server, or of the clock that the application has set. */
export function now(parameter: string): string {
  return `coalesce(${timeOf(parameter)}, now())`;
}

/** As `now`, but not the start of the statement: it may have waited for one that has made the delivery due. */
export function later(parameter: string): string {
  return `coalesce(${timeOf(parameter)}, clock_timestamp())`;
}

/** Milliseconds by which a clock may differ from the server's without being corrected. */
const AGREEMENT = 1_000;

/**
 * Milliseconds to add to a time of this process so that it is one of the server. Clocks that almost agree are not corrected,
 * so that equal times stay equal.
 */
export function skew(nowParameter: string, ownParameter: string): string {
  const ahead = `${millisecondsOf(later(nowParameter))} - ${ownParameter}::float8`;
  return `CASE WHEN abs(${ahead}) < ${AGREEMENT} THEN 0 ELSE ${ahead} END`;
}

/** Whether an open transaction has written something. A statement outside of transactions has not, until it writes itself. */
export const HAS_WRITTEN = 'pg_current_xact_id_if_assigned() IS NOT NULL';

/** Makes {@link HAS_WRITTEN} true for the rest of a transaction. */
export const WRITE_NOTHING = 'SELECT pg_current_xact_id()::text AS id';

/**
 * Columns that set `lock_timeout` for the rest of the transaction, unless the parameter is `null` or the one from before is shorter,
 * and have that one. With `MATERIALIZED`, it applies to the rest of the statement too.
 *
 * @param parameter - a time with its unit
 */
export function settingLockTimeout(parameter: string): string {
  const before = `current_setting('lock_timeout')`;
  const shorter = `least(nullif(${before}::interval, '0'), ${parameter}::text::interval)`;
  return `${before} AS before, CASE WHEN ${parameter}::text IS NOT NULL
    THEN set_config('lock_timeout', (extract(epoch FROM ${shorter}) * 1000)::int::text, true) END AS now`;
}

/** The conditions of a statement, with its values. */
export class Conditions {
  private readonly texts: string[] = [];

  /** @param values - those that the statement has besides: `$1` and the next ones */
  constructor(readonly values: unknown[] = []) {}

  /** `' WHERE …'`, or nothing without conditions. */
  get clause(): string {
    return this.texts.length === 0 ? '' : ` WHERE ${this.text}`;
  }

  get text(): string {
    return this.texts.join(' AND ');
  }

  always(text: string): void {
    this.texts.push(text);
  }

  /** Adds a condition unless its value is `undefined`. */
  add(value: unknown, condition: (parameter: string) => string): void {
    if (value !== undefined) this.always(condition(`$${this.values.push(value)}`));
  }

  /**
   * Begins a page after a row, in descending order.
   *
   * @param place - its time in epoch milliseconds, and its id
   * @param columns - both columns in brackets
   */
  after(place: readonly [at: number, id: string] | undefined, columns: string): void {
    if (place === undefined) return;
    const [at, id] = place.map((value) => `$${this.values.push(value)}`);
    this.always(`${columns} < (${timeOf(at!)}, ${id}::text COLLATE "C")`);
  }
}

/**
 * Replaces `$1`, `$2`, … by literals, for a library or a protocol that takes statements without values.
 *
 * @throws TypeError for another value than a string, a finite number, a boolean or `null`
 */
export function sqlLiterals(text: string, values: readonly unknown[] = []): string {
  return text.replace(/\$(\d+)/g, (_, index: string) => literal(values[Number(index) - 1]));
}

/**
 * Escaped so that it means the same whatever `standard_conforming_strings` is.
 *
 * @see PostgreSQL, "4.1.2.2. String Constants With C-Style Escapes"
 */
function literal(value: unknown): string {
  if (value === null) return 'NULL';
  if (typeof value === 'boolean' || (typeof value === 'number' && Number.isFinite(value))) {
    return `'${value}'`;
  }
  if (typeof value !== 'string') {
    throw new TypeError(
      'Only strings, finite numbers, booleans and null can be written as SQL literals.',
    );
  }
  const quoted = value.replaceAll("'", "''");
  return quoted.includes('\\') ? ` E'${quoted.replaceAll('\\', '\\\\')}'` : `'${quoted}'`;
}

/** Names that need no quotes in SQL. */
const SCHEMA_NAME = /^(?!pg_)[a-z_][a-z0-9_]{0,48}$/;

export const SCHEMA_RULE =
  'must be 1 to 49 of a-z, 0-9 and "_", and start neither with a digit nor with "pg_"';

export function isSchemaName(value: unknown): value is string {
  return typeof value === 'string' && SCHEMA_NAME.test(value);
}

export const SCHEMA = option.optional(option.rule<string>(isSchemaName, SCHEMA_RULE), 'webhooks');
