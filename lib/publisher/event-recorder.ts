import { publishing } from '../deliveries/delivery.reporter.js';
import type { WebhookDeliverer } from '../deliveries/webhook.deliverer.js';
import { errorType, isWebhookError, WebhookDeliveryError } from '../errors/webhook.error.js';
import type { DeliveryRecord, OutgoingDelivery } from '../queue/webhook-delivery.js';
import type { EnqueuedDelivery, WebhookQueue } from '../queue/webhook-queue.js';
import { type Endpoint, limitsOf } from '../sending/endpoint.js';
import { isLimited } from '../queue/lane-limits.js';
import { type EventDraft, requireSameContent } from '../sending/event-draft.js';
import type { RequestComposer } from '../sending/request.composer.js';
import type { ResolvedPublishOptions } from './publish-options.js';
import type { ResolvedPublisherOptions } from './publisher-options.js';

/** For each delivery what was recorded before, or `undefined` if it is recorded now. */
export type EarlierRecords = readonly (DeliveryRecord | undefined)[];

interface AddressedDelivery {
  readonly delivery: OutgoingDelivery;
  readonly endpoint: Endpoint;
}

/** An event with its deliveries, ready to be recorded. */
export interface AddressedEvent {
  readonly draft: EventDraft;
  readonly deliveries: readonly AddressedDelivery[];
  readonly options: Pick<ResolvedPublishOptions, 'id' | 'delay' | 'signal'>;
  /** Says in messages which event of a call it is; absent if the call has only one. */
  readonly position?: string | undefined;
}

/** Records the deliveries of events in the queue. */
export class EventRecorder {
  constructor(
    private readonly options: Pick<ResolvedPublisherOptions, 'clock'>,
    private readonly queue: WebhookQueue,
    private readonly deliverer: WebhookDeliverer,
    private readonly composer: RequestComposer,
  ) {}

  /**
   * Records the deliveries of all events, or none.
   *
   * @param tx - the transaction to record in; `undefined` for none
   * @returns for each event what was recorded of its deliveries before
   * @throws `WebhookDeliveryError` `invalid_option`, `id_conflict`, `aborted`, and what the queue throws
   */
  async record(
    events: readonly AddressedEvent[],
    tx?: unknown,
  ): Promise<readonly EarlierRecords[]> {
    const operations = events.map(({ draft: { event, eventId, tenant } }) =>
      publishing.begin(() => ({ event, eventId, tenant })),
    );
    const traces = operations.map((operation) => operation?.trace);
    try {
      const recorded = await this.enqueue(events, traces, tx);
      for (const [index, earlier] of recorded.entries()) {
        const duplicate = areDuplicates(earlier);
        operations[index]?.end({ deliveries: earlier.length, duplicate });
      }
      return recorded;
    } catch (error) {
      const outcome = { deliveries: 0, duplicate: false, error: errorType(error) };
      for (const operation of operations) operation?.end(outcome);
      throw error;
    }
  }

  private async enqueue(
    events: readonly AddressedEvent[],
    traces: readonly OutgoingDelivery['trace'][],
    tx: unknown,
  ): Promise<readonly EarlierRecords[]> {
    for (const event of events)
      await inEvent(event, async () => this.requireThatHeadsCanCarry(event));
    await this.deliverer.start();
    for (const { options } of events) {
      if (options.signal?.aborted === true) throw aborted(options.signal);
    }
    const now = this.options.clock.now();
    const items = events.flatMap((event, index) => itemsOf(event, traces[index], now));
    if (items.length === 0) return events.map(() => []);
    requireDistinctContents(events);
    const within = tx === undefined ? undefined : { tx };
    // A conflict must leave nothing recorded.
    const named = events.filter(({ options }) => options.id !== undefined);
    if (named.length > 0 && items.length > 1) {
      const ids = named.flatMap(({ deliveries }) => deliveries.map(({ delivery }) => delivery.id));
      requireSameContents(named, await this.queue.find(ids, within));
    }
    return requireSameContents(events, await this.queue.enqueue(items, within));
  }

  private async requireThatHeadsCanCarry({ deliveries }: AddressedEvent): Promise<void> {
    for (const { delivery, endpoint } of deliveries) {
      if ((delivery.method ?? endpoint.method) === 'HEAD') {
        await this.composer.requireThatHeadCanCarry(delivery, endpoint);
      }
    }
  }
}

/** Whether every delivery of an event was recorded before. */
export function areDuplicates(earlier: EarlierRecords): boolean {
  return earlier.length > 0 && !earlier.includes(undefined);
}

function itemsOf(
  { deliveries, options }: AddressedEvent,
  trace: OutgoingDelivery['trace'],
  now: number,
): EnqueuedDelivery<OutgoingDelivery>[] {
  return deliveries.map(({ delivery, endpoint }) => {
    const notBefore = now + options.delay + endpoint.retry.waitBefore(1);
    const limits = limitsOf(endpoint);
    return {
      delivery: trace === undefined ? delivery : { ...delivery, trace },
      notBefore,
      ...(isLimited(limits) && { limits }),
    };
  });
}

/** @throws `WebhookDeliveryError` `id_conflict` if two events of a call have the same id and differ */
function requireDistinctContents(events: readonly AddressedEvent[]): void {
  const first = new Map<string, OutgoingDelivery>();
  for (const event of events) {
    for (const { delivery } of event.deliveries) {
      const other = first.get(delivery.id);
      if (other === undefined) first.set(delivery.id, delivery);
      else requireSame(event, delivery, other);
    }
  }
}

/**
 * @param records - what was recorded of all deliveries before, in their order
 * @returns the records of each event
 * @throws `WebhookDeliveryError` `id_conflict`
 */
function requireSameContents(
  events: readonly AddressedEvent[],
  records: EarlierRecords,
): readonly EarlierRecords[] {
  let end = 0;
  return events.map((event) => {
    const earlier = records.slice(end, (end += event.deliveries.length));
    for (const [index, record] of earlier.entries()) {
      const { delivery } = event.deliveries[index]!;
      if (record !== undefined) requireSame(event, delivery, record.delivery);
    }
    return earlier;
  });
}

function requireSame(
  { position }: AddressedEvent,
  delivery: OutgoingDelivery,
  other: Pick<OutgoingDelivery, 'contentDigest'>,
): void {
  try {
    requireSameContent(delivery, other);
  } catch (error) {
    throw prefixed(error, position);
  }
}

/** Runs a step of one event. Its error says which event of the call it is. */
export async function inEvent<T>(
  { position }: Pick<AddressedEvent, 'position'>,
  step: () => T | Promise<T>,
): Promise<T> {
  try {
    return await step();
  } catch (error) {
    throw prefixed(error, position);
  }
}

/** Adds a prefix, if there is one, to the message of an error of this package. */
export function prefixed(error: unknown, prefix: string | undefined): unknown {
  if (prefix === undefined || !isWebhookError(error)) return error;
  const { message, stack } = error;
  error.message = `${prefix}: ${message}`;
  if (stack !== undefined) error.stack = stack.replace(message, () => error.message);
  return error;
}

export function aborted(signal: AbortSignal): WebhookDeliveryError {
  return new WebhookDeliveryError('aborted', 'The signal was aborted.', { cause: signal.reason });
}
