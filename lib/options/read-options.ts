import { WebhookDeliveryError } from '../errors/webhook.error.js';
import { Problems } from './problems.js';
import { isOptions, type Rule } from './rules.js';

/**
 * Reads the options of a module, a constructor or a test helper; left out, they are empty.
 *
 * @param at - the class or function, for messages; or its problems, if some were found already
 * @throws {@link WebhookConfigurationError} with every problem
 */
export function readOptions<T>(rule: Rule<T>, given: unknown, at: string | Problems): T {
  const problems = typeof at === 'string' ? new Problems(at) : at;
  const read = rule(given === undefined ? {} : given, problems, '');
  problems.throwIfAny();
  for (const { path, message } of problems.warnings) {
    process.emitWarning(`${path} ${message}`, { code: 'WEBHOOK_OPTIONS' });
  }
  return read;
}

/** @throws {@link WebhookConfigurationError} for what cannot hold the options of a module */
export function requireOptions(options: unknown, module: string): void {
  const problems = new Problems();
  problems.require(
    isOptions(options),
    module,
    'has no options; pass an object to forRoot, or return one from the factory of forRootAsync',
  );
  problems.throwIfAny();
}

/**
 * @param path - the argument's name, for messages
 * @throws {@link WebhookDeliveryError} `invalid_option` with every problem
 */
export function readArgument<T>(rule: Rule<T>, given: unknown, path = ''): T {
  const problems = new Problems(path);
  const read = rule(given, problems, '');
  if (problems.all.length > 0) throw invalidOptions(problems.all);
  return read;
}

/** One problem makes a sentence; several make a list. */
export function invalidOptions(problems: Problems['all'], what = 'The options are'): Error {
  const lines = problems.map(({ path, message }) =>
    path === '' ? message : `${path}: ${message}`,
  );
  const [first] = lines;
  return new WebhookDeliveryError(
    'invalid_option',
    lines.length > 1
      ? `${what} invalid:\n${lines.map((line) => `  - ${line}`).join('\n')}`
      : /[.?]$/.test(first!)
        ? first!
        : `${first}.`,
    { problems },
  );
}
