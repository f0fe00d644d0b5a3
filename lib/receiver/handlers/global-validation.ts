import { ValidationPipe, type ValidationPipeOptions } from '@nestjs/common';
import type { ApplicationConfig } from '@nestjs/core';

/** The fields of a ValidationPipe that hold its options; they are protected. */
interface PipeFields {
  readonly validatorOptions?: ValidationPipeOptions;
  readonly transformOptions?: ValidationPipeOptions['transformOptions'];
  readonly isDetailedOutputDisabled?: boolean;
}

/** The validation that an application applies to every HTTP request. */
interface GlobalValidation {
  /** The options of its global ValidationPipes; `undefined` if it has none. */
  readonly options: ValidationPipeOptions | undefined;
  /** Whether it has one that is request-scoped: its options are unknown before the first request. */
  readonly isRequestScoped: boolean;
}

/**
 * Reads the options of the global ValidationPipes, set by `useGlobalPipes` or `APP_PIPE`.
 *
 * Options that shape an HTTP error (status, format, exception factory) do not apply to webhooks. `transform` is not taken over:
 * a handler gets an instance of its class, and a pipe does not record whether `transform` was set to false or left out.
 */
export function readGlobalValidation(config: ApplicationConfig): GlobalValidation {
  const pipes = config.getGlobalPipes().filter((pipe) => pipe instanceof ValidationPipe);
  const isRequestScoped = config
    .getGlobalRequestPipes()
    .some(({ metatype }) => isValidationPipe(metatype));
  const options = pipes.map((pipe) => optionsOf(pipe as unknown as PipeFields));
  return {
    options: options.length === 0 ? undefined : Object.assign({}, ...options),
    isRequestScoped,
  };
}

function optionsOf({
  validatorOptions,
  transformOptions,
  isDetailedOutputDisabled,
}: PipeFields): ValidationPipeOptions {
  return {
    ...validatorOptions,
    ...(transformOptions !== undefined && { transformOptions }),
    ...(isDetailedOutputDisabled === true && { disableErrorMessages: true }),
  };
}

function isValidationPipe(metatype: unknown): boolean {
  return (
    typeof metatype === 'function' &&
    (metatype === ValidationPipe || metatype.prototype instanceof ValidationPipe)
  );
}
