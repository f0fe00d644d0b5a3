import { WebhookConfigurationError } from '../../errors/webhook.error.js';
import {
  UnprocessableEntityException,
  ValidationPipe,
  type ArgumentMetadata,
  type Type,
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
  throw new UnprocessableEntityException(result.issues.map(describeIssue));
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
    pipe = new ValidationPipe({ transform: true, errorHttpStatusCode: 422, ...options });
    pipes.set(options, pipe);
  }
  return pipe;
}

function describeIssue({ message, path = [] }: StandardIssue): string {
  const keys = path.map((step) => String(typeof step === 'object' ? step.key : step));
  return keys.length === 0 ? message : `${keys.join('.')}: ${message}`;
}
