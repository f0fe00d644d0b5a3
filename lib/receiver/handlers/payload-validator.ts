import { WebhookConfigurationError } from '../../errors/webhook.error.js';
import {
  UnprocessableEntityException,
  ValidationPipe,
  type ArgumentMetadata,
  type Type,
  type ValidationError,
  type ValidationPipeOptions,
} from '@nestjs/common';

/**
 * A schema of the Standard Schema specification: zod, valibot, arktype and others.
 *
 * @see https://standardschema.dev
 */
export interface StandardSchema<Output = unknown> {
  readonly '~standard': {
    readonly version: 1;
    readonly vendor: string;
    /** Gives the value, transformed, or what is wrong with it. */
    readonly validate: (value: unknown) => StandardResult<Output> | Promise<StandardResult<Output>>;
  };
}

type StandardResult<Output> =
  | { readonly value: Output; readonly issues?: undefined }
  | { readonly issues: readonly StandardIssue[] };

interface StandardIssue {
  readonly message: string;
  readonly path?: readonly (PropertyKey | { readonly key: PropertyKey })[] | undefined;
}

/** Types the compiler records for parameters that are no DTO. */
const PLAIN_TYPES: ReadonlySet<unknown> = new Set<unknown>([
  undefined,
  String,
  Boolean,
  Number,
  Array,
  Object,
  Buffer,
  Date,
]);

/** One pipe for each options object: a receiver's options live as long as the application. */
const pipes = new WeakMap<object, ValidationPipe>();

/**
 * Validates data against a Standard Schema.
 *
 * @returns what the schema makes of it
 * @throws {@link UnprocessableEntityException} with one message an issue
 */
export async function validateWithSchema(data: unknown, schema: StandardSchema): Promise<unknown> {
  const result = await schema['~standard'].validate(data);
  if (result.issues === undefined) return result.value;
  const exception = new UnprocessableEntityException(result.issues.map(describeIssue));
  constraints.set(exception, result.issues.map(nameIssue));
  throw exception;
}

/**
 * Validates and transforms data into a class-validator DTO; what is typed with no class passes as it is.
 *
 * @throws {@link UnprocessableEntityException}-like HttpException 422 with one message a constraint
 */
export async function validateWithClass(
  data: unknown,
  metatype: unknown,
  options: ValidationPipeOptions | false,
): Promise<unknown> {
  if (options === false || PLAIN_TYPES.has(metatype) || !(await canValidate())) return data;
  const metadata: ArgumentMetadata = { type: 'body', metatype: metatype as Type };
  return pipeFor(options).transform(data, metadata);
}

let validators: Promise<boolean> | undefined;

/**
 * Whether class-validator is there. It is an optional peer: without it no class can have a constraint, so
 * there is nothing to check. Nest's ValidationPipe is not asked, because it ends the process instead.
 *
 * @throws {@link WebhookConfigurationError} where it is there and class-transformer, which it needs, is not
 */
function canValidate(): Promise<boolean> {
  validators ??= import('class-validator').then(
    async () => {
      await import('class-transformer').catch(() => {
        throw new WebhookConfigurationError([
          {
            path: 'receiver.validation',
            message:
              'needs class-transformer beside class-validator: install it, or set validation: false',
          },
        ]);
      });
      return true;
    },
    () => false,
  );
  return validators;
}

function pipeFor(options: ValidationPipeOptions): ValidationPipe {
  let pipe = pipes.get(options);
  if (pipe === undefined) {
    pipe = new DataPipe({ transform: true, errorHttpStatusCode: 422, ...options });
    pipes.set(options, pipe);
  }
  return pipe;
}

/** A ValidationPipe that keeps the names of the constraints that failed, for the log. */
class DataPipe extends ValidationPipe {
  constructor(options: ValidationPipeOptions) {
    super(options);
    const { exceptionFactory } = this;
    this.exceptionFactory = async (errors) => {
      const exception: unknown = await exceptionFactory(errors);
      if (exception instanceof Error)
        constraints.set(
          exception,
          errors.flatMap((one) => nameErrors(one)),
        );
      return exception;
    };
  }
}

/** Constraints by the exception that reports them to the sender. */
const constraints = new WeakMap<Error, readonly string[]>();

/** A name that a sender may have chosen, as a log can show it. */
const SHOWN_NAME = /^[\w$.-]{1,64}$/;

/**
 * The constraints that data failed, as `path constraint`, without a value of it.
 *
 * @param error - what validation threw, or the AggregateError of several handlers; of anything else, none
 */
export function failedConstraints(error: unknown): readonly string[] {
  const errors: readonly unknown[] = error instanceof AggregateError ? error.errors : [error];
  const all = errors.flatMap((one) => (one instanceof Error ? (constraints.get(one) ?? []) : []));
  return [...new Set(all)];
}

function nameErrors(error: ValidationError, parent = ''): string[] {
  const path = `${parent}${shown(error.property)}`;
  const own = Object.keys(error.constraints ?? {}).map((name) => `${path} ${shown(name)}`);
  return [...own, ...(error.children ?? []).flatMap((child) => nameErrors(child, `${path}.`))];
}

/** The specification has no code for an issue; zod and others add one. */
function nameIssue(issue: StandardIssue): string {
  const { code } = issue as { readonly code?: unknown };
  const path = pathOf(issue).map(shown).join('.');
  return `${path === '' ? 'data' : path} ${typeof code === 'string' ? shown(code) : 'invalid'}`;
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
