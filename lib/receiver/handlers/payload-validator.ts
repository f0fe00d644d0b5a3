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
    /** Returns the transformed value, or the issues. */
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

/** What the compiler records for a parameter whose type is not a class of the application's. */
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

/**
 * Validates data against a Standard Schema.
 *
 * @returns the schema's output
 * @throws {@link UnprocessableEntityException} with one message per issue
 */
export async function validateWithSchema(data: unknown, schema: StandardSchema): Promise<unknown> {
  const result = await schema['~standard'].validate(data);
  if (result.issues === undefined) return result.value;
  const exception = new UnprocessableEntityException(result.issues.map(describeIssue));
  constraints.set(exception, result.issues.map(nameIssue));
  throw exception;
}

/** Validates the data of a receiver's events against the class that a parameter is typed with. */
export class PayloadValidator {
  private pipe: ValidationPipe | undefined;

  /** @param options - `false` for no validation; `undefined` until start-up may supply {@link useDefaults} */
  constructor(private options: ValidationPipeOptions | false | undefined) {}

  /** Whether data is validated at all. */
  get isEnabled(): boolean {
    return this.options !== false;
  }

  /** Whether the receiver sets the options itself. */
  get isConfigured(): boolean {
    return this.options !== undefined;
  }

  /** Sets the options of a receiver that has none of its own. */
  useDefaults(options: ValidationPipeOptions): void {
    this.options ??= options;
  }

  /**
   * Validates and transforms data into a class-validator DTO; data of any other type passes unchanged.
   *
   * @throws an HttpException 422 with one message per failed constraint
   */
  async validate(data: unknown, metatype: unknown): Promise<unknown> {
    const { options = {} } = this;
    if (options === false || !isClass(metatype)) return data;
    if ((await findClassValidator()) === 'missing') return data;
    this.pipe ??= new DataPipe({ transform: true, errorHttpStatusCode: 422, ...options });
    const metadata: ArgumentMetadata = { type: 'body', metatype: metatype as Type };
    return this.pipe.transform(data, metadata);
  }
}

/** Whether a parameter's type is a class of the application's own, which may have constraints. */
export function isClass(metatype: unknown): boolean {
  return !PLAIN_TYPES.has(metatype);
}

/** `incomplete`: class-validator is installed, and class-transformer, which it needs here, is not. */
export type ClassValidatorInstallation = 'installed' | 'incomplete' | 'missing';

let installation: Promise<ClassValidatorInstallation> | undefined;

/**
 * Looks for class-validator, an optional peer: without it no class can have constraints. Asking Nest's ValidationPipe
 * instead would end the process.
 */
export function findClassValidator(): Promise<ClassValidatorInstallation> {
  installation ??= import('class-validator').then(
    () =>
      import('class-transformer').then(
        () => 'installed',
        () => 'incomplete',
      ),
    () => 'missing',
  );
  return installation;
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

/** Names that a log line shows; a sender may have chosen them. */
const SHOWN_NAME = /^[\w$.-]{1,64}$/;

/**
 * The constraints that data failed, as `path constraint`, without a value of it.
 *
 * @param error - the error of validation, or the AggregateError of several handlers; any other error gives none
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
