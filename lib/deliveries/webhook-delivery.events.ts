import { Logger, type OnApplicationShutdown, type OnApplicationBootstrap } from '@nestjs/common';
import type { DiscoveryService, MetadataScanner } from '@nestjs/core';
import { WebhookConfigurationError, type ConfigurationProblem } from '../errors/webhook.error.js';
import { waitUntil, type WebhookClock } from '../clock/webhook-clock.js';
import { nearestWord } from '../options/option-names.js';
import { requireRunnable } from '../options/read-options.js';
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

type Wrapper = ReturnType<DiscoveryService['getProviders']>[number];
type Reaction = (event: WebhookDeliveryEvent) => unknown;

/** Finds methods decorated with `@OnWebhookDelivery()` at start-up, and calls them. */
export class DeliveryReactionExplorer implements OnApplicationBootstrap, OnApplicationShutdown {
  private readonly logger = new Logger('WebhookPublisher');
  private readonly running = new Set<Promise<void>>();
  private readonly explored = new WeakSet<object>();

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
    const problems: ConfigurationProblem[] = [];
    for (const wrapper of [...this.discovery.getProviders(), ...this.discovery.getControllers()]) {
      if (!wrapper.isAlias) this.explore(wrapper, problems);
    }
    if (problems.length > 0) throw new WebhookConfigurationError(problems);
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

  private explore(wrapper: Wrapper, problems: ConfigurationProblem[]): void {
    const scope = scopeProblem(wrapper);
    const prototype = prototypeOf(wrapper, scope !== undefined);
    // A factory may provide the same instance under a second token.
    if (prototype === null || this.explored.has(wrapper.instance as object)) return;
    if (scope === undefined) this.explored.add(wrapper.instance as object);
    for (const name of this.scanner.getAllMethodNames(prototype)) {
      const types = typesOf(prototype[name]);
      if (types.length === 0) continue;
      const path = `${String(wrapper.name)}.${name}`;
      const unknown = types.filter(
        (type) => !(WEBHOOK_DELIVERY_EVENTS as readonly string[]).includes(type),
      );
      if (unknown.length > 0) {
        const meant = nearestWord(unknown[0]!, WEBHOOK_DELIVERY_EVENTS);
        const remedy =
          meant === undefined
            ? `use ${WEBHOOK_DELIVERY_EVENTS.join(', ')}`
            : `did you mean "${meant}"?`;
        const message = `"${unknown[0]}" is not a delivery event; ${remedy}`;
        problems.push({ path, message });
      } else if (scope !== undefined) {
        problems.push({ path, message: `${scope}: move the method to a singleton` });
      } else {
        if (!this.limits.publishes) {
          this.logger.warn(
            `${path} is never called: @OnWebhookDelivery() reacts to deliveries, and WebhookModule has no "publisher".`,
          );
        }
        this.subscribe(path, new Set(types), wrapper.instance as Record<string, Reaction>, name);
      }
    }
  }

  private subscribe(
    path: string,
    types: ReadonlySet<string>,
    instance: Record<string, Reaction>,
    name: string,
  ): void {
    this.events.events$.subscribe((event) => {
      if (!types.has(event.type)) return;
      const run = this.react(path, event, () => instance[name]!(event));
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
      this.logger.error(`${path} failed on "${event.type}" of ${event.deliveryId}`, stack);
    }
  }
}

/** Why a provider or controller has no single instance to call. */
function scopeProblem(wrapper: Wrapper): string | undefined {
  if (!wrapper.isDependencyTreeStatic()) {
    return 'belongs to a request-scoped provider, and a delivery has no request';
  }
  return wrapper.isTransient
    ? 'belongs to a transient provider, which has an instance for each class that injects it'
    : undefined;
}

/** Of the instance: the class of one that a factory or a value provides is unknown. */
function prototypeOf(
  { instance, metatype }: Wrapper,
  isScoped: boolean,
): Record<string, unknown> | null {
  if (isScoped)
    return (metatype as { prototype?: Record<string, unknown> } | null)?.prototype ?? null;
  return typeof instance === 'object' && instance !== null ? Object.getPrototypeOf(instance) : null;
}

function typesOf(method: unknown): readonly string[] {
  if (typeof method !== 'function') return [];
  return (Reflect.getMetadata(DELIVERY_REACTIONS, method) ?? []) as readonly string[];
}
