import { subscribe, unsubscribe } from 'node:diagnostics_channel';
import {
  type DynamicModule,
  Inject,
  Injectable,
  Module,
  type OnApplicationShutdown,
  type OnModuleInit,
} from '@nestjs/common';
import { ModulesContainer } from '@nestjs/core';
import { diag, metrics, trace } from '@opentelemetry/api';
import type { Subscription } from 'rxjs';
import type { Duration } from '../clock/duration.js';
import { attempting, publishing } from '../deliveries/delivery.channels.js';
import type { Operation, OperationChannels } from '../diagnostics/operation.js';
import { webhookPartsOf } from '../health/webhook-parts.js';
import { readOptions } from '../options/read-options.js';
import { duration, flag, object, optional, type Read } from '../options/rules.js';
import { handling, receiving } from '../receiver/receiver.channels.js';
import { OperationTracers } from './operation-tracers.js';
import { StateGauges } from './state-gauges.js';
import { WebhookMetrics } from './webhook-metrics.js';

export interface WebhookTelemetryOptions {
  /**
   * Attempts within this time after the publish are part of its trace; later ones start a trace of their own. Both are linked to the
   * publish. Handlers of a queued event follow its request in the same way. Default `'1m'`; 0: each starts a trace of its own.
   */
  readonly joinTraceFor?: Duration | undefined;
  /**
   * Whether a receiver continues the sender's trace, once the request is verified, or the active span, such as that of an instrumented
   * HTTP server; default `true`. With `false`, it starts a trace of its own with a link, and the sender does not decide what is sampled.
   */
  readonly continueTraces?: boolean | undefined;
  /**
   * Whether the deliveries in the publisher's queue and the events in the queues of receivers are counted whenever metrics are collected;
   * default `true`. Of several instances that share them, one is enough.
   */
  readonly countDeliveries?: boolean | undefined;
}

const OPTIONS = object<WebhookTelemetryOptions>()({
  joinTraceFor: optional(duration({ min: 0 }), 60_000),
  continueTraces: optional(flag, true),
  countDeliveries: optional(flag, true),
});

type ResolvedTelemetryOptions = Read<typeof OPTIONS>;

const TELEMETRY_OPTIONS = Symbol('options of WebhookTelemetryModule');

/** Applications that are observed. A second import would count everything twice. */
const observed = new WeakSet<ModulesContainer>();

/** Observes every webhook module of the process while the application runs. */
@Injectable()
class TelemetrySubscriber implements OnModuleInit, OnApplicationShutdown {
  private readonly endings: (() => void)[] = [];

  constructor(
    @Inject(TELEMETRY_OPTIONS) private readonly options: ResolvedTelemetryOptions,
    private readonly modules: ModulesContainer,
  ) {}

  onModuleInit(): void {
    if (observed.has(this.modules)) return;
    observed.add(this.modules);
    const meter = metrics.getMeter('nestjs-webhook-token');
    const instruments = new WebhookMetrics(meter);
    const tracers = new OperationTracers(
      trace.getTracer('nestjs-webhook-token'),
      instruments,
      this.options,
    );
    this.attach(publishing, (operation) => tracers.publishing(operation));
    this.attach(attempting, (operation) => tracers.attempting(operation));
    this.attach(receiving, (operation) => tracers.receiving(operation));
    this.attach(handling, (operation) => tracers.handling(operation));
    const parts = webhookPartsOf(this.modules);
    const gauges = new StateGauges(meter, parts, this.options.countDeliveries);
    const subscriptions: Subscription[] = parts.map(({ events }) =>
      events.events$.subscribe((event) => instruments.ended(event)),
    );
    this.endings.push(
      () => observed.delete(this.modules),
      () => gauges.close(),
      () => subscriptions.forEach((subscription) => subscription.unsubscribe()),
    );
  }

  onApplicationShutdown(): void {
    for (const end of this.endings.splice(0)) end();
  }

  private attach<Facts extends object, Outcome extends object>(
    { startName }: OperationChannels<Facts, Outcome>,
    observe: (operation: Operation<Facts, Outcome>) => void,
  ): void {
    const onStart = (message: unknown): void => {
      const operation = message as Operation<Facts, Outcome>;
      // Another application in this process has attached a span.
      if (operation.tracer !== undefined) return;
      try {
        observe(operation);
      } catch (error) {
        // Node ends the process on an error of a subscriber.
        diag.error('nestjs-webhook-token: a span could not be started', error);
      }
    };
    subscribe(startName, onStart);
    this.endings.push(() => unsubscribe(startName, onStart));
  }
}

/**
 * Traces and measures webhooks with OpenTelemetry: requests, handlers, publishes and attempts. Start the OpenTelemetry SDK before the
 * application. Import it once: one import observes every webhook module, and a further one is ignored.
 *
 * ```ts
 * imports: [WebhookModule.forRoot({ … }), WebhookTelemetryModule.forRoot()]
 * ```
 */
@Module({})
export class WebhookTelemetryModule {
  /** @throws {@link WebhookConfigurationError} */
  static forRoot(options?: WebhookTelemetryOptions): DynamicModule {
    const useValue = readOptions(OPTIONS, options, 'WebhookTelemetryModule');
    return {
      module: WebhookTelemetryModule,
      providers: [{ provide: TELEMETRY_OPTIONS, useValue }, TelemetrySubscriber],
    };
  }
}
