import { channel } from 'node:diagnostics_channel';
import { Inject, Injectable, Logger, Optional, type OnApplicationShutdown } from '@nestjs/common';
import type { Subscription } from 'rxjs';
import { WebhookClock } from '../clock/webhook-clock.js';
import { WebhookDeliveryEvents } from '../deliveries/webhook-delivery.events.js';
import { ReceiverReporter } from '../receiver/receiver.reporter.js';
import type { AuditEntry, ChangesAnswer, ConsoleChange } from './console-api.js';

const MAX_AUDIT = 500;
const MAX_CHANGES = 1_000;
/** Changes of one answer. */
const MAX_ANSWERED = 200;
/** Milliseconds within which received requests are reported once. */
const INBOX_PAUSE = 1_000;

/** Name of the diagnostics channel with an {@link AuditEntry} for each action. */
const ACTION_CHANNEL = 'nestjs-webhook-token:console-action';
const actions = channel(ACTION_CHANNEL);

/** A change, and the tenant whose portal may see it. */
interface ScopedChange extends ConsoleChange {
  /** `undefined`: only the console. */
  readonly tenant: string | undefined;
}

/** What happened: actions of users, and changes for live updates. Both are kept in memory, up to a bound. */
@Injectable()
export class ConsoleActivity implements OnApplicationShutdown {
  private readonly logger = new Logger('WebhookConsole');
  private readonly audit: AuditEntry[] = [];
  private readonly changes: ScopedChange[] = [];
  private readonly listeners = new Set<(change: ScopedChange) => void>();
  private sequence: number;
  private lastInboxChange = 0;
  private subscription: Subscription | undefined;
  /** The sequence of the newest change that is not kept any more. */
  private forgotten = 0;

  constructor(
    private readonly deliveries: WebhookDeliveryEvents,
    @Optional() @Inject(ReceiverReporter) private readonly receiver: ReceiverReporter | undefined,
    private readonly clock: WebhookClock,
  ) {
    this.sequence = clock.now();
  }

  /** Records an action: in the log, on the diagnostics channel, and in the list of the console. */
  acted(entry: AuditEntry): void {
    this.audit.unshift(entry);
    if (this.audit.length > MAX_AUDIT) this.audit.pop();
    const { action, actor = 'unnamed user', target, tenant, count, outcome, code } = entry;
    const facts = [
      ...(target === undefined ? [] : [JSON.stringify(target)]),
      ...(count === undefined ? [] : [`${count} affected`]),
      ...(tenant === undefined ? [] : [`tenant ${JSON.stringify(tenant)}`]),
      ...(outcome === 'failed' ? [`failed: ${code}`] : []),
    ].join(', ');
    this.logger.log(`${action} by ${JSON.stringify(actor)}${facts === '' ? '' : ` (${facts})`}`);
    if (actions.hasSubscribers) actions.publish(entry);
    this.changed('audit', undefined, undefined);
  }

  /** The actions, newest first. */
  get entries(): readonly AuditEntry[] {
    return this.audit;
  }

  /** Begins to observe the library; without a user of the console, it costs nothing. */
  observe(): void {
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

  /** Reports a change to open streams. */
  changed(topic: ConsoleChange['topic'], id: string | undefined, tenant: string | undefined): void {
    // Derived from the time, so that a tenant does not learn from it how much others do.
    const now = this.clock.now();
    this.sequence = Math.max(this.sequence + 1, now);
    const at = new Date(now).toISOString();
    const change = { sequence: this.sequence, topic, ...(id !== undefined && { id }), at, tenant };
    this.changes.push(change);
    if (this.changes.length > MAX_CHANGES) this.forgotten = this.changes.shift()!.sequence;
    for (const listener of this.listeners) listener(change);
  }

  /**
   * Calls back with every change.
   *
   * @param tenant - the only one whose changes are reported; `undefined` for all
   * @returns ends it
   */
  subscribe(tenant: string | undefined, listener: (change: ConsoleChange) => void): () => void {
    const filtered = (change: ScopedChange): void => {
      if (isVisible(change, tenant)) listener(visible(change));
    };
    this.listeners.add(filtered);
    return () => this.listeners.delete(filtered);
  }

  /** @param after - the sequence of the last answer; `undefined` for none */
  since(after: number | undefined, tenant: string | undefined): ChangesAnswer {
    const { sequence } = this;
    if (after === undefined) return { sequence, changes: [], gap: false };
    const found = this.changes.filter(
      (change) => change.sequence > after && isVisible(change, tenant),
    );
    const gap = after < this.forgotten || after > sequence || found.length > MAX_ANSWERED;
    return { sequence, changes: gap ? [] : found.map(visible), gap };
  }

  onApplicationShutdown(): void {
    this.subscription?.unsubscribe();
    this.receiver?.observers.delete(this.received);
  }

  private readonly received = (): void => {
    const now = this.clock.now();
    if (Math.abs(now - this.lastInboxChange) < INBOX_PAUSE) return;
    this.lastInboxChange = now;
    this.changed('inbox', undefined, undefined);
  };
}

function isVisible(change: ScopedChange, tenant: string | undefined): boolean {
  return tenant === undefined || change.tenant === tenant;
}

function visible({ tenant: _tenant, ...change }: ScopedChange): ConsoleChange {
  return change;
}
