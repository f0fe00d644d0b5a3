import { WebhookConfigurationError } from '../errors/webhook-configuration.error.js';

/** Answers for what the module cannot do without `publisher` options. */
export async function refuseUnconfigured(): Promise<never> {
  throw new WebhookConfigurationError([
    {
      path: 'publisher',
      message: 'nothing can be published without it: give WebhookModule.forRoot a publisher',
    },
  ]);
}
