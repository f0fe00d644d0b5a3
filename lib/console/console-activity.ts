import { Inject, Injectable, Optional, type OnApplicationShutdown } from '@nestjs/common';
import type { Subscription } from 'rxjs';
import { WebhookClock } from '../clock/webhook-clock.js';
import { WebhookDeliveryEvents } from '../deliveries/webhook-delivery.events.js';
import { ReceiverReporter } from '../receiver/receiver.reporter.js';
import type { ConsoleChange } from './console-api.js';

/** Milliseconds within which received requests are reported once. */
const INBOX_PAUSE = 1_000;

interface ChangeListener {
  /** The only one whose changes it hears of; `undefined` for all. */
  readonly tenant: string | undefined;
  readonly notify: (change: ConsoleChange) => void;
}

/** Changes for live updates. */
@Injectable()
export class ConsoleActivity implements OnApplicationShutdown {
  private readonly listeners = new Set<ChangeListener>();
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
    const change = { topic, ...(id !== undefined && { id }), at };
    for (const listener of this.listeners) {
      if (listener.tenant === undefined || listener.tenant === tenant) listener.notify(change);
    }
  }

  /**
   * Calls back with every change.
   *
   * @param tenant - the only one whose changes are reported; `undefined` for all
   * @returns ends it
   */
  subscribe(tenant: string | undefined, notify: (change: ConsoleChange) => void): () => void {
    this.observe();
    const listener = { tenant, notify };
    this.listeners.add(listener);
    return () => this.listeners.delete(listener);
  }

  onApplicationShutdown(): void {
    this.subscription?.unsubscribe();
    this.receiver?.observers.delete(this.received);
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
