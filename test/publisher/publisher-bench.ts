import { HttpModule, HttpService } from '@nestjs/axios';
import type { DynamicModule, LoggerService } from '@nestjs/common';
import { Test, type TestingModule } from '@nestjs/testing';
import { TestClock } from 'nestjs-webhook-token/testing';
import {
  WebhookModule,
  WebhookPublisher,
  type WebhookPublisherOptions,
} from 'nestjs-webhook-token';
import {
  type DeliveryRun,
  type ListedDelivery,
  type WebhookDelivery,
  WebhookQueue,
} from 'nestjs-webhook-token/ports';
import {
  PUBLISHER_OPTIONS,
  type ResolvedPublisherOptions,
} from '../../lib/publisher/publisher-options.resolver.js';

export const secret = 'a secret of the test that nobody may ever print';

/** One run of a delivery, before the queue has recorded it. */
interface ReportedRun extends DeliveryRun {
  readonly delivery: WebhookDelivery;
}

/** A publisher on a clock that the test moves. */
export class PublisherBench {
  readonly reports: ReportedRun[] = [];
  readonly logged: unknown[][] = [];
  private readonly listeners: ((run: ReportedRun) => void)[] = [];
  private readonly waiting: { readonly count: number; readonly resolve: () => void }[] = [];

  private constructor(
    readonly module: TestingModule,
    readonly clock: TestClock,
    logged: unknown[][],
  ) {
    this.logged = logged;
    const { queue } = this;
    const consume = queue.consume.bind(queue);
    queue.consume = async (handle) =>
      consume(async (delivery, attempt) => {
        const run = await handle(delivery, attempt);
        for (const listener of this.listeners) listener({ delivery, ...run });
        return run;
      });
    this.onRun((report) => {
      this.reports.push(report);
      for (const { count, resolve } of this.waiting) if (this.reports.length >= count) resolve();
    });
  }

  /** @param httpModule - `'own'` is the library's own HttpService, which an application cannot reach */
  static async start(
    options: Partial<WebhookPublisherOptions> = {},
    http?: Partial<HttpService>,
    clock = new TestClock(),
    httpModule: DynamicModule | 'own' = HttpModule.register({}),
  ): Promise<PublisherBench> {
    const publisher: WebhookPublisherOptions = {
      issuer: 'https://billing.example',
      secret,
      allowHttp: true,
      allowedAddresses: ['127.0.0.1'],
      ...options,
      retry: { jitter: 0, ...options.retry },
    };
    const own = httpModule === 'own' ? {} : { httpModule };
    const logged: unknown[][] = [];
    let building = Test.createTestingModule({
      imports: [WebhookModule.forRoot({ publisher, clock, ...own })],
    }).setLogger(noting(logged));
    if (http !== undefined) building = building.overrideProvider(HttpService).useValue(http);
    const module = await building.compile();
    return new PublisherBench(module, clock, logged);
  }

  get publisher(): WebhookPublisher {
    return this.module.get(WebhookPublisher);
  }

  get queue(): WebhookQueue {
    return this.module.get(WebhookQueue);
  }

  get http(): HttpService {
    return this.module.get(HttpService, { strict: false });
  }

  /** Calls the listener with every run, before the queue records it. */
  onRun(listener: (run: ReportedRun) => void): void {
    this.listeners.push(listener);
  }

  /** The options of the publisher, as its parts get them. */
  get options(): ResolvedPublisherOptions {
    return this.module.get(PUBLISHER_OPTIONS);
  }

  /** Resolves when this many runs have ended since the start, and the queue has recorded them. */
  async reported(count: number): Promise<void> {
    if (this.reports.length < count) {
      await new Promise<void>((resolve) => this.waiting.push({ count, resolve }));
    }
    await new Promise<void>((resolve) => setImmediate(resolve));
  }

  /** The dead deliveries. */
  async dead(): Promise<readonly ListedDelivery[]> {
    return this.queue.list({ status: 'dead' }, { limit: 100 });
  }

  /** What was logged at a level. */
  logs(level: string): string[] {
    return this.logged.filter(([at]) => at === level).map(([, message]) => String(message));
  }

  async stop(): Promise<void> {
    const closed = this.module.close();
    await this.clock.advance(60_000);
    await closed;
  }
}

function noting(logged: unknown[][]): LoggerService {
  const note =
    (level: string) =>
    (...args: unknown[]): void =>
      void logged.push([level, ...args]);
  return {
    log: note('log'),
    error: note('error'),
    warn: note('warn'),
    debug: note('debug'),
    verbose: note('verbose'),
    fatal: note('fatal'),
  };
}
