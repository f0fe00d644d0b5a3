import { ConfigurableModuleBuilder, type DynamicModule } from '@nestjs/common';
import { noWebhookHttpModule, webhookHttpModule } from './publisher/webhook-http.js';
import type {
  WebhookModuleExtras,
  WebhookModuleOptions,
} from './webhook-module-options.interface.js';

const DEFAULT_EXTRAS: WebhookModuleExtras = { isGlobal: true, httpModule: undefined };

export const { ConfigurableModuleClass, MODULE_OPTIONS_TOKEN, OPTIONS_TYPE, ASYNC_OPTIONS_TYPE } =
  new ConfigurableModuleBuilder<WebhookModuleOptions>({ moduleName: 'Webhook' })
    .setClassMethodName('forRoot')
    .setFactoryMethodName('createWebhookOptions')
    .setExtras(DEFAULT_EXTRAS, (definition, { isGlobal, httpModule }) => ({
      ...definition,
      global: isGlobal ?? true,
      imports: [
        ...(definition.imports ?? []),
        mayPublish(definition) ? webhookHttpModule(httpModule) : noWebhookHttpModule(),
      ],
    }))
    .build();

/** The options of `forRootAsync` are not known yet. */
function mayPublish({ providers = [] }: DynamicModule): boolean {
  const known = providers.find((provider) => 'useValue' in provider);
  return known === undefined || (known.useValue as WebhookModuleOptions).publisher !== undefined;
}
