import { ConfigurableModuleBuilder } from '@nestjs/common';
import { HttpModule } from '@nestjs/axios';
import type {
  WebhookModuleExtras,
  WebhookModuleOptions,
} from './webhook-module-options.interface.js';

const DEFAULT_EXTRAS: WebhookModuleExtras = { isGlobal: true, httpModule: HttpModule };

export const { ConfigurableModuleClass, MODULE_OPTIONS_TOKEN, OPTIONS_TYPE, ASYNC_OPTIONS_TYPE } =
  new ConfigurableModuleBuilder<WebhookModuleOptions>({ moduleName: 'Webhook' })
    .setClassMethodName('forRoot')
    .setFactoryMethodName('createWebhookOptions')
    .setExtras(DEFAULT_EXTRAS, (definition, { isGlobal, httpModule }) => ({
      ...definition,
      global: isGlobal ?? true,
      imports: [...(definition.imports ?? []), httpModule ?? HttpModule],
    }))
    .build();
