import {
  Inject,
  type DynamicModule,
  type FactoryProvider,
  Module,
  type ModuleMetadata,
  type NestModule,
  type Provider,
} from '@nestjs/common';
import { ApplicationConfig, HttpAdapterHost } from '@nestjs/core';
import { readOptions, requireOptions } from '../options/read-options.js';
import { func, object, optional, rule, type Rule, unchecked } from '../options/rules.js';
import { ActivityLog } from './activity-log.js';
import { ConsoleActivity } from './console-activity.js';
import {
  CONSOLE_OPTIONS,
  type ResolvedConsole,
  resolveConsole,
  type WebhookConsoleExtras,
  type WebhookConsoleOptions,
} from './console-options.js';
import { ConsoleLimits } from './console-limits.js';
import { ConsoleStatistics } from './console-statistics.js';
import { ConsoleControllers, ConsoleGuardCheck } from './console.controllers.js';
import { ConsoleHealth } from './console-health.js';
import { ConsoleHandler } from './console.handler.js';
import { ConsoleAlerts } from './console.alerts.js';
import { ConsoleEndpoints } from './console.endpoints.js';
import { ConsoleInbox } from './console.inbox.js';
import { ConsoleRecovery } from './console.recovery.js';
import { ConsoleService } from './console.service.js';
import { ConsoleStreams } from './console.streams.js';
import { WebhookPortal } from './webhook.portal.js';

const NAME = 'WebhookConsoleModule';
const OPTIONS = Symbol(`${NAME} options`);

/** Options of `forRootAsync`; what the factory returns wins over options beside it. */
export type WebhookConsoleAsyncOptions = WebhookConsoleExtras &
  Pick<WebhookConsoleOptions, 'path'> & {
    /** Creates the options at start-up. */
    readonly useFactory: (
      ...dependencies: never[]
    ) => WebhookConsoleOptions | Promise<WebhookConsoleOptions>;
    /** What the factory is called with. */
    readonly inject?: FactoryProvider['inject'];
  };

function listLike<T>(example: string): Rule<T | undefined> {
  return optional(rule<T>(Array.isArray, `must be a list, such as ${example}`));
}

const EXTRA_RULES = {
  imports: listLike<WebhookConsoleExtras['imports']>('[AdminModule]'),
  guards: listLike<WebhookConsoleExtras['guards']>('[AdminGuard]'),
  decorators: listLike<WebhookConsoleExtras['decorators']>("[Roles('admin')]"),
  portalDecorators: listLike<WebhookConsoleExtras['portalDecorators']>('[Public()]'),
};
const EXTRAS = object<WebhookConsoleExtras>()(EXTRA_RULES);
const ASYNC_OPTIONS = object<WebhookConsoleAsyncOptions>()({
  ...EXTRA_RULES,
  // Checked with what the factory returns.
  path: unchecked<string | undefined>(),
  useFactory: func<WebhookConsoleAsyncOptions['useFactory']>('(…) => options'),
  inject: listLike<FactoryProvider['inject']>('[ConfigService]'),
});

/**
 * A page and a JSON API to see deliveries, endpoints and received requests, and to act on them. Import it beside `WebhookModule`.
 *
 * ```ts
 * WebhookConsoleModule.forRoot({ guards: [AdminGuard], capabilities: ['view', 'redeliver'] })
 * ```
 *
 * Its controllers are ordinary ones: global guards, the global prefix and versions in URLs apply. In production it does not start without
 * a guard.
 */
@Module({})
export class WebhookConsoleModule implements NestModule {
  /** @internal */
  constructor(
    @Inject(CONSOLE_OPTIONS) private readonly options: ResolvedConsole,
    private readonly controllers: ConsoleControllers,
    private readonly adapterHost: HttpAdapterHost,
    private readonly config: ApplicationConfig,
  ) {}

  /**
   * Called by Nest before it registers routes.
   *
   * @hidden
   */
  async configure(): Promise<void> {
    const router = this.adapterHost.httpAdapter.getType();
    await this.controllers.mount(this.options, router, this.config.getVersioning()?.type);
  }

  /**
   * Registers the console.
   *
   * @throws WebhookConfigurationError at start-up, with every problem; also in production if no guard protects it
   */
  static forRoot(options: WebhookConsoleOptions & WebhookConsoleExtras = {}): DynamicModule {
    requireOptions(options, NAME);
    const { imports, guards, decorators, portalDecorators, ...others } = options;
    const extras = readOptions(EXTRAS, { imports, guards, decorators, portalDecorators }, NAME);
    return register(extras, { provide: OPTIONS, useValue: others });
  }

  /** Registers the console with options that are created at start-up. */
  static forRootAsync(options: WebhookConsoleAsyncOptions): DynamicModule {
    requireOptions(options, NAME);
    const { useFactory, inject = [], path, ...extras } = readOptions(ASYNC_OPTIONS, options, NAME);
    return register(extras, {
      provide: OPTIONS,
      useFactory: async (...dependencies: never[]) => {
        const created = await useFactory(...dependencies);
        requireOptions(created, NAME);
        return { ...(path !== undefined && { path }), ...created };
      },
      inject,
    });
  }
}

function register(extras: WebhookConsoleExtras, options: Provider): DynamicModule {
  const controllers = new ConsoleControllers(extras);
  return {
    module: WebhookConsoleModule,
    imports: [...(extras.imports ?? [])] as NonNullable<ModuleMetadata['imports']>,
    controllers: [controllers.console, controllers.portal],
    providers: [
      options,
      { provide: ConsoleControllers, useValue: controllers },
      {
        provide: CONSOLE_OPTIONS,
        useFactory: (given: WebhookConsoleOptions) => resolveConsole(given),
        inject: [OPTIONS],
      },
      ActivityLog,
      ConsoleActivity,
      ConsoleAlerts,
      ConsoleEndpoints,
      ConsoleHealth,
      ConsoleInbox,
      ConsoleLimits,
      ConsoleRecovery,
      ConsoleService,
      ConsoleStatistics,
      ConsoleStreams,
      ConsoleHandler,
      ConsoleGuardCheck,
      WebhookPortal,
    ],
    exports: [WebhookPortal],
  };
}
