import { Inject, Injectable, Optional, type OnApplicationShutdown } from '@nestjs/common';
import type { Subscription } from 'rxjs';
import { WebhookClock } from '../clock/webhook-clock.js';
import { WebhookDeliveryEvents } from '../deliveries/webhook-delivery.events.js';
import { ReceiverReporter } from '../receiver/receiver.reporter.js';
import type { ChangesAnswer, ConsoleChange } from './console-api.js';

/** Changes of one scope that are kept, and that one answer has at most. */
const MAX_CHANGES = 200;
/** Tenants whose changes are kept. */
const MAX_SCOPES = 1_000;
/** Milliseconds within which received requests are reported once. */
const INBOX_PAUSE = 1_000;

/**
 * The changes that one tenant, or the console, may see. Each scope has a sequence of its own, so that no tenant learns from it when
 * or how much others do.
 */
interface ChangeScope {
  sequence: number;
  /** The sequence of the newest change that is not kept any more. */
  forgotten: number;
  readonly changes: ConsoleChange[];
  readonly listeners: Set<(change: ConsoleChange) => void>;
}

/** Changes for live updates, kept in memory up to a bound. */
@Injectable()
export class ConsoleActivity implements OnApplicationShutdown {
  /** By tenant; the console's has none. */
  private readonly scopes = new Map<string | undefined, ChangeScope>();
  private lastInboxChange = 0;
  private subscription: Subscription | undefined;

  constructor(
    private readonly deliveries: WebhookDeliveryEvents,
    @Optional() @Inject(ReceiverReporter) private readonly receiver: ReceiverReporter | undefined,
    private readonly clock: WebhookClock,
  ) {}

  /** Reports a change to the console, and to the tenant that it belongs to. */
  changed(topic: ConsoleChange['topic'], id: string | undefined, tenant: string | undefined): void {
    const at = new Date(this.clock.now()).toISOString();
    for (const one of new Set([undefined, tenant])) {
      const scope = this.scopes.get(one);
      if (scope === undefined) continue;
      const change = { sequence: ++scope.sequence, topic, ...(id !== undefined && { id }), at };
      scope.changes.push(change);
      if (scope.changes.length > MAX_CHANGES) scope.forgotten = scope.changes.shift()!.sequence;
      for (const listener of scope.listeners) listener(change);
    }
  }

  /**
   * Calls back with every change.
   *
   * @param tenant - the only one whose changes are reported; `undefined` for all
   * @returns ends it
   */
  subscribe(tenant: string | undefined, listener: (change: ConsoleChange) => void): () => void {
    const { listeners } = this.scopeOf(tenant);
    listeners.add(listener);
    return () => listeners.delete(listener);
  }

  /** @param after - the sequence of the last answer; `undefined` for none */
  since(after: number | undefined, tenant: string | undefined): ChangesAnswer {
    const { sequence, forgotten, changes } = this.scopeOf(tenant);
    if (after === undefined) return { sequence, changes: [], gap: false };
    const gap = after < forgotten || after > sequence;
    return {
      sequence,
      changes: gap ? [] : changes.filter((change) => change.sequence > after),
      gap,
    };
  }

  onApplicationShutdown(): void {
    this.subscription?.unsubscribe();
    this.receiver?.observers.delete(this.received);
  }

  /** The changes of a tenant, which are kept from its first request on. */
  private scopeOf(tenant: string | undefined): ChangeScope {
    this.observe();
    const found = this.scopes.get(tenant);
    if (found !== undefined) return found;
    if (this.scopes.size >= MAX_SCOPES) {
      // One that is asked for again starts again, with a gap.
      const idle = [...this.scopes].find(([, { listeners }]) => listeners.size === 0);
      if (idle !== undefined) this.scopes.delete(idle[0]);
    }
    // From the time, so that a sequence of an earlier process is not taken for one of this.
    const start = this.clock.now();
    const scope = { sequence: start, forgotten: start, changes: [], listeners: new Set<never>() };
    this.scopes.set(tenant, scope);
    return scope;
  }

  /** Observes the library; without a user of the console, it costs nothing. */
  private observe(): void {
    if (this.subscription !== undefined) return;
    this.subscription = this.deliveries.events$.subscribe(
      ({ type, deliveryId, endpointId, tenant }) => {
        this.changed('deliveries', deliveryId, tenant);
        const isOfEndpoint = type === 'endpoint-disabled' || type.startsWith('circuit-');
        if (isOfEndpoint) this.changed('endpoints', endpointId, tenant);
      },
    );
    this.receiver?.observers.add(this.received);
  }

  private readonly received = (): void => {
    const now = this.clock.now();
    if (Math.abs(now - this.lastInboxChange) < INBOX_PAUSE) return;
    this.lastInboxChange = now;
    this.changed('inbox', undefined, undefined);
  };
}
