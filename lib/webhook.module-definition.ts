import { ConfigurableModuleBuilder } from '@nestjs/common';
import { webhookHttpModule } from './sending/webhook-http.js';
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
      imports: [...(definition.imports ?? []), webhookHttpModule(httpModule)],
    }))
    .build();
