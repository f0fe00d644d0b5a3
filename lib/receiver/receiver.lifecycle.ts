import {
  Inject,
  Injectable,
  Logger,
  type OnModuleDestroy,
  type OnApplicationBootstrap,
  type OnModuleInit,
  ValidationPipe,
} from '@nestjs/common';
import { ApplicationConfig, DiscoveryService, MetadataScanner } from '@nestjs/core';
import { WebhookConfigurationError, type ConfigurationProblem } from '../errors/webhook.error.js';
import { waitUntil, type WebhookClock } from '../clock/webhook-clock.js';
import { methodsOf } from '../options/decorated-methods.js';
import {
  receiverNamed,
  type ResolvedReceiver,
  type ResolvedReceivers,
  unknownReceiver,
} from './receiver-options.resolver.js';
import { RECEIVER_SHUTDOWN, WEBHOOK_RECEIVERS } from './receiver.constants.js';
import { EventPoller } from './event.poller.js';
import { ReceiverDrain } from './receiver.drain.js';
import { WebhookExplorer } from './handlers/webhook.explorer.js';
import { readRoute } from './handlers/handler-metadata.js';
import { WebhookMount } from './mount/webhook.mount.js';
import { receiversOfRoute } from './webhook.guard.js';

const ELSEWHERE =
  '. Another webhook module has it, but a module uses only the first webhook module that it imports: import the other one, or merge both';

/** How long a shutdown waits for running handlers. */
export interface ReceiverShutdown {
  readonly clock: WebhookClock;
  /** Milliseconds. */
  readonly timeout: number;
}

/** Starts the receivers with the application and drains them at shutdown. */
@Injectable()
export class ReceiverLifecycle implements OnModuleInit, OnApplicationBootstrap, OnModuleDestroy {
  private readonly logger = new Logger('WebhookModule');

  constructor(
    @Inject(WEBHOOK_RECEIVERS) private readonly receivers: ResolvedReceivers,
    @Inject(RECEIVER_SHUTDOWN) private readonly shutdown: ReceiverShutdown,
    private readonly config: ApplicationConfig,
    private readonly discovery: DiscoveryService,
    private readonly scanner: MetadataScanner,
    private readonly explorer: WebhookExplorer,
    private readonly mount: WebhookMount,
    private readonly drain: ReceiverDrain,
    private readonly poller: EventPoller,
  ) {}

  async onModuleInit(): Promise<void> {
    const keys = await this.loadKeys();
    const problems = [
      ...keys.problems,
      ...this.severalGlobalModules(),
      ...(await this.startReceivers()),
      ...this.routesWithoutReceiver(),
    ];
    if (problems.length > 0) throw new WebhookConfigurationError(problems, { cause: keys.cause });
    for (const { spool, notices } of this.receivers.values()) {
      // Bodies that a crashed process left behind, on systems that cannot unlink an open file.
      await spool?.sweep();
      for (const notice of notices) this.logger.warn(notice);
    }
  }

  onApplicationBootstrap(): void {
    this.mount.attach();
  }

  /** In the first hook of a shutdown: the publisher stops in a later one, and running handlers may publish until they end. */
  async onModuleDestroy(): Promise<void> {
    const { clock, timeout } = this.shutdown;
    const ended = Promise.all([this.drain.close(), this.poller.stop()]);
    await waitUntil(clock, clock.now() + timeout, ended);
    const left = this.drain.abortRest();
    if (left > 0) {
      this.logger.warn(`${left} webhook(s) were still being handled after ${timeout} ms`);
    }
  }

  /** Before the first request: a receiver without keys would refuse valid ones. */
  private async loadKeys(): Promise<{ problems: ConfigurationProblem[]; cause: unknown }> {
    const problems: ConfigurationProblem[] = [];
    let cause: unknown;
    for (const { name, issuers } of this.receivers.values()) {
      try {
        await issuers.start();
      } catch (error) {
        if (!(error instanceof WebhookConfigurationError)) throw error;
        cause ??= error.cause;
        for (const { path, message } of error.problems) {
          problems.push({ path: `receiver "${name}".${path}`, message });
        }
      }
    }
    return { problems, cause };
  }

  private async startReceivers(): Promise<ConfigurationProblem[]> {
    if (this.receivers.size === 0) {
      const [first] = this.webhookModules();
      const isFirst = first?.instance === this.receivers;
      if (isFirst && this.allReceivers().length === 0) this.explorer.warnUnreceived();
      return [];
    }
    this.warnOfGlobalValidation();
    return [...(await this.explorer.explore(this.allReceivers())), ...this.mount.mountReceivers()];
  }

  /** The options of a global pipe cannot be read: with `whitelist`, webhooks would be the only way around it. */
  private warnOfGlobalValidation(): void {
    if (!hasGlobalValidation(this.config)) return;
    for (const { name, validator } of this.receivers.values()) {
      if (validator.isConfigured) continue;
      this.logger.warn(
        `Receiver "${name}" validates data without the options of the application's global ValidationPipe; set receiver.validation to the same options, or to {} for none`,
      );
    }
  }

  /** With two global modules, the order of imports would decide whose publisher and guard are injected. */
  private severalGlobalModules(): ConfigurationProblem[] {
    const globals = this.webhookModules().filter(({ host }) => host?.isGlobal === true);
    if (globals.length < 2) return [];
    return [
      {
        path: 'WebhookModule',
        message: `${globals.length} instances are global, so it is undefined which one Nest injects; pass receiver and publisher to one forRoot, or set isGlobal: false and import each where it is used`,
      },
    ];
  }

  /**
   * Finds `@WebhookRoute()` methods whose receiver their webhook module does not have: every event would be rejected with 500. Which
   * routes have only `@UseGuards(WebhookGuard)` is not known; their guard reports it when a request arrives.
   */
  private routesWithoutReceiver(): ConfigurationProblem[] {
    return methodsOf(this.discovery.getControllers(), this.scanner).flatMap(
      ({ host, method, name }) => {
        const route = readRoute(method);
        const receivers = receiversOfRoute(host);
        if (route === undefined || receivers === undefined) return [];
        if (receiverNamed(receivers, route.receiver) !== undefined) return [];
        const message = unknownReceiver(receivers, route.receiver);
        const isElsewhere = this.webhookModules().some(
          ({ instance }) =>
            receiverNamed(instance as ResolvedReceivers, route.receiver) !== undefined,
        );
        return [{ path: name, message: isElsewhere ? `${message}${ELSEWHERE}` : message }];
      },
    );
  }

  private webhookModules(): ReturnType<DiscoveryService['getProviders']> {
    return this.discovery.getProviders().filter(({ token }) => token === WEBHOOK_RECEIVERS);
  }

  private allReceivers(): ResolvedReceiver[] {
    return this.webhookModules().flatMap(({ instance }) => [
      ...((instance as ResolvedReceivers | undefined)?.values() ?? []),
    ]);
  }
}

/** Whether the application validates HTTP requests with a global ValidationPipe, which webhooks do not pass. */
function hasGlobalValidation(config: ApplicationConfig): boolean {
  return (
    config.getGlobalPipes().some((pipe) => pipe instanceof ValidationPipe) ||
    config
      .getGlobalRequestPipes()
      .some(
        ({ metatype }) =>
          typeof metatype === 'function' &&
          (metatype === ValidationPipe || metatype.prototype instanceof ValidationPipe),
      )
  );
}
