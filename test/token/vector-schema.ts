import { readFileSync } from 'node:fs';
import { join } from 'node:path';
import { isDeepStrictEqual } from 'node:util';
import { VECTORS } from './vector-file.js';

type Schema = Readonly<Record<string, unknown>>;

const root = JSON.parse(readFileSync(join(VECTORS, 'vectors.schema.json'), 'utf8')) as Schema;

/** Keywords of JSON Schema that do not affect validity. */
const ANNOTATIONS = new Set(['$schema', '$defs', 'title', 'description', 'required', 'properties']);

type Check = (value: unknown, operand: never, path: string, schema: Schema) => string[];

/**
 * The part of JSON Schema 2020-12 that vectors.schema.json is written in. A keyword that is not in this table fails, so that nothing in the schema stays unchecked.
 */
const CHECKS: Readonly<Record<string, Check>> = {
  $ref: (value, ref: string, path) => problems(value, resolve(ref), path),
  type: (value, type: string, path) => unless(typeOf(value, type), `${path}: is no ${type}`),
  const: (value, only, path) => unless(isDeepStrictEqual(value, only), `${path}: is not ${only}`),
  enum: (value, all: unknown[], path) => unless(all.includes(value), `${path}: is none of ${all}`),
  oneOf: (value, schemas: Schema[], path) => {
    const results = schemas.map((schema) => problems(value, schema, path));
    const holding = results.filter((found) => found.length === 0).length;
    return holding === 1 ? [] : [`${path}: ${holding} forms hold`, ...results.flat()];
  },
  items: (value, schema: Schema, path) =>
    Array.isArray(value)
      ? value.flatMap((item, index) => problems(item, schema, `${path}[${index}]`))
      : [],
  minItems: (value, least: number, path) =>
    unless(!Array.isArray(value) || value.length >= least, `${path}: is too short`),
  minLength: (value, least: number, path) =>
    unless(typeof value !== 'string' || value.length >= least, `${path}: is too short`),
  pattern: (value, pattern: string, path) =>
    unless(
      typeof value !== 'string' || new RegExp(pattern, 'u').test(value),
      `${path}: has another form`,
    ),
  minimum: (value, least: number, path) =>
    unless(typeof value !== 'number' || value >= least, `${path}: is too small`),
  exclusiveMinimum: (value, least: number, path) =>
    unless(typeof value !== 'number' || value > least, `${path}: is too small`),
  additionalProperties: (value, allowed: Schema | false, path, schema) => {
    const known = Object.keys((schema['properties'] as Schema | undefined) ?? {});
    return membersOf(value)
      .filter(([name]) => !known.includes(name))
      .flatMap(([name, member]) =>
        allowed === false ? [`${path}.${name}: is unknown`] : problems(member, allowed, path),
      );
  },
};

/** Checks a vector file against its schema. */
export function problemsOfFile(text: string): string[] {
  return problems(JSON.parse(text), root, '');
}

function problems(value: unknown, schema: Schema, path: string): string[] {
  const properties = (schema['properties'] as Readonly<Record<string, Schema>> | undefined) ?? {};
  const required = (schema['required'] as string[] | undefined) ?? [];
  const members = new Map(membersOf(value));
  return [
    ...required.filter((name) => !members.has(name)).map((name) => `${path}.${name}: is missing`),
    ...Object.entries(properties).flatMap(([name, member]) =>
      members.has(name) ? problems(members.get(name), member, `${path}.${name}`) : [],
    ),
    ...Object.entries(schema)
      .filter(([word]) => !ANNOTATIONS.has(word))
      .flatMap(([word, operand]) => {
        const check = CHECKS[word];
        if (check === undefined) throw new Error(`the schema says "${word}", which nothing checks`);
        return check(value, operand as never, path, schema);
      }),
  ];
}

function resolve(ref: string): Schema {
  const name = ref.replace('#/$defs/', '');
  const schema = (root['$defs'] as Readonly<Record<string, Schema>>)[name];
  if (schema === undefined) throw new Error(`the schema has no ${ref}`);
  return schema;
}

function membersOf(value: unknown): [string, unknown][] {
  return typeOf(value, 'object') ? Object.entries(value as object) : [];
}

function typeOf(value: unknown, type: string): boolean {
  switch (type) {
    case 'array':
      return Array.isArray(value);
    case 'object':
      return typeof value === 'object' && value !== null && !Array.isArray(value);
    case 'integer':
      return Number.isInteger(value);
    default:
      return typeof value === type;
  }
}

function unless(holds: boolean, problem: string): string[] {
  return holds ? [] : [problem];
}
