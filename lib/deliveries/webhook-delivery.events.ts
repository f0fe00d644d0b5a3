import { Logger, type OnApplicationShutdown, type OnApplicationBootstrap } from '@nestjs/common';
import type { DiscoveryService, MetadataScanner } from '@nestjs/core';
import { quietly } from '../errors/webhook.error.js';
import { waitUntil, type WebhookClock } from '../clock/webhook-clock.js';
import { nearestWord } from '../options/option-names.js';
import { Problems } from '../options/problems.js';
import {
  type HostedMethod,
  type MethodHost,
  methodsOf,
  requireRunnable,
} from '../options/decorated-methods.js';
import { type Observable, Subject } from 'rxjs';
import type { FailureReason } from '../queue/webhook-delivery.js';

/** The kinds of delivery events. */
export const WEBHOOK_DELIVERY_EVENTS = [
  /** An attempt was acknowledged. */
  'delivered',
  /** An attempt failed, and there will be another. */
  'retry-scheduled',
  /** The last attempt failed, or there can be none: the delivery is dead. */
  'exhausted',
  /** The egress guard refuses the URL or its addresses: the delivery is dead. */
  'destination-blocked',
  /** The endpoint receives nothing more: it answered 410, or has failed for too long. */
  'endpoint-disabled',
  /** The endpoint keeps failing; its deliveries are paused. */
  'circuit-opened',
  /** The endpoint works again. */
  'circuit-closed',
] as const;

export type WebhookDeliveryEventType = (typeof WEBHOOK_DELIVERY_EVENTS)[number];

/** Something that happened to a delivery or to its endpoint. It contains no token, secret, payload or URL. */
export interface WebhookDeliveryEvent {
  readonly type: WebhookDeliveryEventType;
  /** By the publisher's clock. */
  readonly at: Date;
  readonly deliveryId: string;
  /** The event's id, the same for every endpoint. */
  readonly eventId: string;
  /** The event's name. */
  readonly event: string;
  /** Absent for a URL that the caller of `send` passed. */
  readonly endpointId?: string;
  readonly tenant?: string;
  /** Attempts made so far. */
  readonly attempts: number;
  /** Absent if no answer arrived. */
  readonly statusCode?: number;
  /** Why the attempt failed. */
  readonly reason?: FailureReason;
  /** With `retry-scheduled`. */
  readonly nextAttemptAt?: Date;
}

/**
 * Delivery events as a stream: for metrics, alerts and dashboards. To react to some kinds of events, use
 * `@OnWebhookDelivery()`.
 *
 * The stream covers the attempts of this process and keeps no history. Catch errors in your subscriber: rxjs reports them as
 * uncaught exceptions.
 */
export class WebhookDeliveryEvents {
  private readonly subject = new Subject<WebhookDeliveryEvent>();

  /** Never errors; completes at shutdown. */
  readonly events$: Observable<WebhookDeliveryEvent> = this.subject.asObservable();

  /** @hidden */
  get hasSubscribers(): boolean {
    return this.subject.observed;
  }

  /** @hidden */
  emit(event: WebhookDeliveryEvent): void {
    this.subject.next(event);
  }

  /** @hidden */
  close(): void {
    this.subject.complete();
  }
}

/** Metadata key of the methods that react to deliveries. */
const DELIVERY_REACTIONS = Symbol('nestjs-webhook-token:delivery-reactions');

/**
 * Calls the method with a {@link WebhookDeliveryEvent} when an event of one of these kinds happens. The delivery does not wait
 * for the method, and an error of it is only logged.
 *
 * ```ts
 * @OnWebhookDelivery('exhausted', 'endpoint-disabled')
 * async alert(event: WebhookDeliveryEvent) {}
 * ```
 *
 * @param types - one or more; the decorator can be repeated
 */
export function OnWebhookDelivery(
  ...types: readonly [WebhookDeliveryEventType, ...WebhookDeliveryEventType[]]
): MethodDecorator {
  return (target, key, descriptor: PropertyDescriptor) => {
    requireRunnable('@OnWebhookDelivery', target, key, descriptor.value);
    const method = descriptor.value as object;
    const known = (Reflect.getOwnMetadata(DELIVERY_REACTIONS, method) ?? []) as readonly string[];
    Reflect.defineMetadata(DELIVERY_REACTIONS, [...known, ...types], method);
  };
}

type Reaction = (event: WebhookDeliveryEvent) => unknown;

/** Finds methods decorated with `@OnWebhookDelivery()` at start-up, and calls them. */
export class DeliveryReactionExplorer implements OnApplicationBootstrap, OnApplicationShutdown {
  private readonly logger = new Logger('WebhookPublisher');
  private readonly running = new Set<Promise<void>>();

  constructor(
    private readonly discovery: DiscoveryService,
    private readonly scanner: MetadataScanner,
    private readonly events: WebhookDeliveryEvents,
    private readonly limits: {
      readonly clock: WebhookClock;
      readonly shutdownTimeout: number;
      /** Whether the module has a publisher, without which there are no deliveries. */
      readonly publishes: boolean;
    },
  ) {}

  /** @hidden */
  onApplicationBootstrap(): void {
    const problems = new Problems();
    const hosts = [...this.discovery.getProviders(), ...this.discovery.getControllers()];
    for (const method of methodsOf(hosts, this.scanner)) this.explore(method, problems);
    problems.throwIfAny();
  }

  /**
   * Waits for reactions to the last deliveries. Nest calls this hook after the publisher has drained.
   *
   * @hidden
   */
  async onApplicationShutdown(): Promise<void> {
    const { clock, shutdownTimeout } = this.limits;
    this.events.close();
    await waitUntil(clock, clock.now() + shutdownTimeout, Promise.all(this.running));
  }

  private explore({ host, key, method, name }: HostedMethod, problems: Problems): void {
    const types = typesOf(method);
    if (types.length === 0) return;
    const problem = typeProblem(types) ?? scopeProblem(host);
    if (problem !== undefined) return problems.add(name, problem);
    if (!this.limits.publishes) {
      this.logger.warn(
        `${name} is never called: @OnWebhookDelivery() reacts to deliveries, and WebhookModule has no "publisher".`,
      );
    }
    const instance = host.instance as Record<string, Reaction>;
    this.events.events$.subscribe((event) => {
      if (!types.includes(event.type)) return;
      const run = this.react(name, event, () => instance[key]!(event));
      this.running.add(run);
      void run.finally(() => this.running.delete(run));
    });
  }

  private async react(
    path: string,
    event: WebhookDeliveryEvent,
    run: () => unknown,
  ): Promise<void> {
    try {
      await run();
    } catch (error) {
      const stack = error instanceof Error ? error.stack : String(error);
      quietly(() =>
        this.logger.error(`${path} failed on "${event.type}" of ${event.deliveryId}`, stack),
      );
    }
  }
}

/** Why one of the types is no delivery event. */
function typeProblem(types: readonly string[]): string | undefined {
  const known: readonly string[] = WEBHOOK_DELIVERY_EVENTS;
  const unknown = types.find((type) => !known.includes(type));
  if (unknown === undefined) return undefined;
  const meant = nearestWord(unknown, known);
  const remedy = meant === undefined ? `use ${known.join(', ')}` : `did you mean "${meant}"?`;
  return `"${unknown}" is not a delivery event; ${remedy}`;
}

/** Why a provider or controller has no single instance to call. */
function scopeProblem(host: MethodHost): string | undefined {
  if (!host.isDependencyTreeStatic()) {
    return 'belongs to a request-scoped provider, and a delivery has no request: move the method to a singleton';
  }
  return host.isTransient
    ? 'belongs to a transient provider, which has an instance for each class that injects it: move the method to a singleton'
    : undefined;
}

function typesOf(method: object): readonly string[] {
  return (Reflect.getMetadata(DELIVERY_REACTIONS, method) ?? []) as readonly string[];
}
