import type { ValidationError } from '@nestjs/common';

/**
 * A schema of the Standard Schema specification: zod, valibot, arktype and others.
 *
 * @see https://standardschema.dev
 */
export interface StandardSchema<Input = unknown, Output = unknown> {
  readonly '~standard': {
    readonly version: 1;
    readonly vendor: string;
    /** Returns the transformed value, or the issues. */
    readonly validate: (value: unknown) => StandardResult<Output> | Promise<StandardResult<Output>>;
    /** For the compiler only. */
    readonly types?: { readonly input: Input; readonly output: Output } | undefined;
    /** Standard JSON Schema, which libraries add to the schema. */
    readonly jsonSchema?: {
      readonly input: (options: { readonly target: 'draft-2020-12' }) => Record<string, unknown>;
    };
  };
}

export type StandardResult<Output> =
  | { readonly value: Output; readonly issues?: undefined }
  | { readonly issues: readonly StandardIssue[] };

interface StandardIssue {
  readonly message: string;
  readonly path?: readonly (PropertyKey | { readonly key: PropertyKey })[] | undefined;
}

/** A class whose properties may have decorators of class-validator. */
export type DtoClass<Data = unknown> = new (...args: never[]) => Data;

/** A constraint that data fails. */
export interface DataIssue {
  /** `path constraint`, without a value of the data: safe to log. */
  readonly constraint: string;
  /** For the sender of the data, which it may quote. */
  readonly message: string;
}

const NONE: readonly DataIssue[] = [];

/** Names that a log line shows; a sender may have chosen them. */
const SHOWN_NAME = /^[\w$.-]{1,64}$/;

/** Checks data with a Standard Schema; the data itself is not changed. */
export async function checkWithSchema(
  data: unknown,
  schema: StandardSchema,
): Promise<readonly DataIssue[]> {
  return schemaIssues(await schema['~standard'].validate(data));
}

export function schemaIssues({ issues }: StandardResult<unknown>): readonly DataIssue[] {
  return issues === undefined
    ? NONE
    : issues.map((issue) => ({ constraint: nameIssue(issue), message: describeIssue(issue) }));
}

/**
 * Checks data with the class-validator constraints of a class. Members without a constraint are allowed.
 *
 * @throws if class-validator or class-transformer is not installed
 */
export async function checkWithDto(data: unknown, dto: DtoClass): Promise<readonly DataIssue[]> {
  const [{ validate }, { plainToInstance }] = await Promise.all([
    import('class-validator'),
    import('class-transformer'),
  ]);
  if (typeof data !== 'object' || data === null || Array.isArray(data)) {
    return [{ constraint: 'data object', message: 'the data must be an object' }];
  }
  const instance = plainToInstance(dto as new () => object, data);
  const errors = await validate(instance, { forbidUnknownValues: false });
  return errors.flatMap((error) => dtoIssues(error as ValidationError));
}

/** The constraints that a property and the ones below it fail. */
export function dtoIssues(error: ValidationError, parent = ''): DataIssue[] {
  const path = `${parent}${error.property}`;
  const own = Object.entries(error.constraints ?? {}).map(([name, message]) => ({
    constraint: `${path.split('.').map(shown).join('.')} ${shown(name)}`,
    message: `${parent}${message}`,
  }));
  return [...own, ...(error.children ?? []).flatMap((child) => dtoIssues(child, `${path}.`))];
}

/** The specification has no code for an issue; zod and others add one, and valibot a type. */
function nameIssue(issue: StandardIssue): string {
  const { code, type } = issue as { readonly code?: unknown; readonly type?: unknown };
  const path = pathOf(issue).map(shown).join('.');
  const name = [code, type].find((one) => typeof one === 'string');
  return `${path === '' ? 'data' : path} ${name === undefined ? 'invalid' : shown(name)}`;
}

function shown(name: string): string {
  return SHOWN_NAME.test(name) ? name : '?';
}

function pathOf({ path = [] }: StandardIssue): string[] {
  return path.map((step) => String(typeof step === 'object' ? step.key : step));
}

function describeIssue(issue: StandardIssue): string {
  const keys = pathOf(issue);
  return keys.length === 0 ? issue.message : `${keys.join('.')}: ${issue.message}`;
}
