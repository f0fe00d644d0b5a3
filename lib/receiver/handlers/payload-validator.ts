import {
  UnprocessableEntityException,
  ValidationPipe,
  type Type,
  type ValidationPipeOptions,
} from '@nestjs/common';
import { missingPackageOf } from '../../errors/webhook.error.js';
import {
  type DataIssue,
  dtoIssues,
  schemaIssues,
  type StandardSchema,
} from '../../events/data-checks.js';
import type { WebhookEventCatalog } from '../../events/event-catalog.js';
import { errorsOfHandlers } from '../error-answers.js';
import { isReadOnDemand, type WebhookEvent } from '../webhook-event.js';

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

/** @throws {@link UnprocessableEntityException} with one message per issue */
export async function validateWithSchema(data: unknown, schema: StandardSchema): Promise<unknown> {
  const result = await schema['~standard'].validate(data);
  if (result.issues === undefined) return result.value;
  throw invalidData(schemaIssues(result));
}

/** The exception for data that fails constraints; their names are kept for the log. */
function invalidData(issues: readonly DataIssue[]): UnprocessableEntityException {
  const exception = new UnprocessableEntityException(issues.map(({ message }) => message));
  constraints.set(
    exception,
    issues.map(({ constraint }) => constraint),
  );
  return exception;
}

/** @throws an HttpException 422 with one message per issue */
export async function requireDefinedData(
  event: WebhookEvent,
  events: WebhookEventCatalog | undefined,
): Promise<void> {
  const issues = await definedDataIssues(event, events);
  if (issues.length > 0) throw invalidData(issues);
}

export async function definedDataIssues(
  event: WebhookEvent,
  events: WebhookEventCatalog | undefined,
): Promise<readonly DataIssue[]> {
  if (events?.checks(event.event) !== true) return [];
  // `data` would read a body that is in a file synchronously.
  const data: unknown = isReadOnDemand(event) ? await event.rawBody() : event.data;
  return events.check(event.event, data);
}

/** Validates the data of a receiver's events against the class that a parameter is typed with. */
export class PayloadValidator {
  private pipe: ValidationPipe | undefined;

  constructor(private readonly options: ValidationPipeOptions | false | undefined) {}

  get isEnabled(): boolean {
    return this.options !== false;
  }

  /** Whether the receiver sets the options itself. */
  get isConfigured(): boolean {
    return this.options !== undefined;
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
    this.pipe ??= dataPipe({ transform: true, errorHttpStatusCode: 422, ...options });
    return this.pipe.transform(data, { type: 'body', metatype: metatype as Type }) as unknown;
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
 * Looks for class-validator, an optional peer: where it is not installed, no class can have constraints. Asking Nest's
 * ValidationPipe instead would end the process.
 *
 * @throws what it throws while it loads: data must not pass because a check cannot run
 */
export function findClassValidator(): Promise<ClassValidatorInstallation> {
  installation ??= import('class-validator').then(
    () =>
      import('class-transformer').then(
        () => 'installed',
        () => 'incomplete',
      ),
    (error: unknown) => {
      if (missingPackageOf(error) === 'class-validator') return 'missing';
      throw error;
    },
  );
  return installation;
}

/** A ValidationPipe that keeps the names of the constraints that failed, for the log. */
function dataPipe(options: ValidationPipeOptions): ValidationPipe {
  const factory = options.exceptionFactory ?? new ValidationPipe(options).createExceptionFactory();
  return new ValidationPipe({
    ...options,
    exceptionFactory: async (errors) => {
      const exception: unknown = await factory(errors);
      if (exception instanceof Error)
        constraints.set(
          exception,
          errors.flatMap((one) => dtoIssues(one).map(({ constraint }) => constraint)),
        );
      return exception;
    },
  });
}

/** Constraints by the exception that reports them to the sender. */
const constraints = new WeakMap<Error, readonly string[]>();

/** The constraints that data failed, as `path constraint`, without a value of it; empty for any other error. */
export function failedConstraints(error: unknown): readonly string[] {
  const all = errorsOfHandlers(error).flatMap((one) =>
    one instanceof Error ? (constraints.get(one) ?? []) : [],
  );
  return [...new Set(all)];
}
