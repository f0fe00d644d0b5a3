import { WebhookError } from './webhook.error.js';

/** One fault of a configuration: where it is, and what to do about it. */
export interface ConfigurationFault {
  /** The option, as a path from the root: `receiver.issuers[0].secret`. */
  readonly path: string;
  /** What is wrong, and the remedy. Never the value itself: it may be a secret. */
  readonly message: string;
}

/**
 * The configuration cannot work. Start-up fails with every fault listed, each with its remedy.
 */
export class WebhookConfigurationError extends WebhookError<'invalid_configuration'> {
  /** @param options.cause - what a source of configuration failed with */
  constructor(
    readonly faults: readonly ConfigurationFault[],
    options: ErrorOptions = {},
  ) {
    super(
      'invalid_configuration',
      describe(faults),
      options.cause === undefined ? undefined : options,
    );
  }
}

function describe(faults: readonly ConfigurationFault[]): string {
  const lines = faults.map(({ path, message }) => `  - ${path}: ${message}`);
  return `The webhook configuration has ${faults.length === 1 ? 'a fault' : `${faults.length} faults`}:\n${lines.join('\n')}`;
}
