import {
  ConfigurableModuleBuilder,
  Inject,
  Injectable,
  Module,
  type DynamicModule,
  type InjectionToken,
  type NestModule,
  type OnModuleInit,
  type Provider,
} from '@nestjs/common';
import { DiscoveryModule, ModuleRef } from '@nestjs/core';
import { WebhookClock } from './clock/webhook-clock.js';
import { WebhookConfigurationError } from './errors/webhook.error.js';
import { PUBLISHER_OPTIONS } from './publisher/publisher-options.resolver.js';
import { PUBLISHER_EXPORTS, PUBLISHER_PROVIDERS } from './publisher/publisher.providers.js';
import { noWebhookHttpModule, webhookHttpModule } from './publisher/webhook-http.js';
import { WebhookPublisher } from './publisher/webhook.publisher.js';
import { WEBHOOK_INBOX } from './receiver/inbox/inbox-options.js';
import { WebhookMount } from './receiver/mount/webhook.mount.js';
import { RECEIVER_SHUTDOWN, WEBHOOK_RECEIVERS } from './receiver/receiver.constants.js';
import { RECEIVER_EXPORTS, RECEIVER_PROVIDERS } from './receiver/receiver.providers.js';
import type {
  WebhookModuleExtras,
  WebhookModuleOptions,
} from './webhook-module-options.interface.js';
import { configuredStores } from './health/webhook-parts.js';
import { WebhookStoreCheck } from './health/store-check.js';
import { requireOptions } from './options/read-options.js';
import {
  resolveAndCheckExamples,
  type ResolvedWebhookOptions,
} from './webhook-options.resolver.js';

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

/** Injection token of the resolved options. Nest prints this description if a module imports the class itself. */
export const RESOLVED_OPTIONS = Symbol(
  'options of WebhookModule: import WebhookModule.forRoot(), not WebhookModule',
);

/** Fails start-up if receivers or publisher are request-scoped: Nest would never start them, without a message. */
@Injectable()
export class ScopeCheck implements OnModuleInit {
  /** Tells test helpers that the application was initialised, also if by another context of its container. */
  hasPassed = false;

  constructor(private readonly module: ModuleRef) {}

  onModuleInit(): void {
    this.requireStatic(
      RESOLVED_OPTIONS,
      'forRootAsync',
      'its options are request-scoped, so no webhook would be received or sent; inject no REQUEST and no request-scoped provider into the factory',
    );
    this.requireStatic(
      WebhookPublisher,
      'httpModule',
      'its HttpService is request-scoped, so no delivery would be sent; register it without REQUEST and without a request-scoped provider',
    );
    this.hasPassed = true;
  }

  private requireStatic(token: symbol | typeof WebhookPublisher, path: string, message: string) {
    try {
      // Throws for a provider that is not static.
      this.module.get<unknown>(token);
    } catch (cause) {
      throw new WebhookConfigurationError([{ path, message }], { cause });
    }
  }
}

function from(
  provide: InjectionToken,
  useFactory: (options: ResolvedWebhookOptions) => unknown,
): Provider {
  return { provide, useFactory, inject: [RESOLVED_OPTIONS] };
}

/** Options are passed to the folders as providers, so that no folder imports the module. */
const OPTION_PROVIDERS: Provider[] = [
  {
    provide: RESOLVED_OPTIONS,
    useFactory: resolveAndCheckExamples,
    inject: [MODULE_OPTIONS_TOKEN],
  },
  ScopeCheck,
  from(WebhookClock, ({ clock }) => clock),
  from(WEBHOOK_RECEIVERS, ({ receivers }) => receivers),
  from(RECEIVER_SHUTDOWN, ({ clock, shutdownTimeout }) => ({ clock, timeout: shutdownTimeout })),
  from(WEBHOOK_INBOX, ({ inbox }) => inbox),
  from(PUBLISHER_OPTIONS, ({ publisher }) => publisher),
  from(
    WebhookStoreCheck,
    (options) => new WebhookStoreCheck(options.checkStores ? configuredStores(options) : []),
  ),
];

/**
 * Receives and publishes webhooks authorised by a signed token.
 *
 * ```ts
 * WebhookModule.forRoot({
 *   receiver: { path: 'webhooks', issuers: [{ issuer: 'https://shop.example', secret }] },
 *   publisher: { issuer: 'https://billing.example', secret, endpoints: [{ id: 'crm', url }] },
 * })
 * ```
 */
@Module({
  imports: [DiscoveryModule],
  providers: [...OPTION_PROVIDERS, ...RECEIVER_PROVIDERS, ...PUBLISHER_PROVIDERS],
  exports: [...RECEIVER_EXPORTS, ...PUBLISHER_EXPORTS, WebhookClock],
})
export class WebhookModule extends ConfigurableModuleClass implements NestModule {
  @Inject(WebhookMount) private readonly mount!: WebhookMount;

  /** @hidden */
  configure(): void {
    this.mount.protectUnguardedRoutes();
  }

  /**
   * Registers the module with the given options.
   *
   * @throws WebhookConfigurationError at start-up, with every problem and its remedy
   */
  static override forRoot(options: typeof OPTIONS_TYPE): DynamicModule {
    requireOptions(options, 'WebhookModule');
    return super.forRoot(options);
  }

  /** Registers the module with options that are created at start-up: `useFactory`, `useClass`, `useExisting`. */
  static override forRootAsync(options: typeof ASYNC_OPTIONS_TYPE): DynamicModule {
    requireOptions(options, 'WebhookModule');
    return super.forRootAsync(options);
  }
}
