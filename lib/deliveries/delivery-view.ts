import type { DeliveryAttempt, DeliveryCounts } from '../queue/delivery-record.js';
import type { ListedOutgoing } from './redelivery.js';
import type {
  DeliveryStanding,
  WebhookAttemptView,
  WebhookDeliveryStats,
  WebhookDeliveryView,
} from './webhook-deliveries.interface.js';

/** A delivery without its payload, and of its URL only the origin. */
export function viewOf(listed: ListedOutgoing): WebhookDeliveryView {
  const { delivery, status, attempts, nextAttemptAt, reason, updatedAt } = listed;
  const { id, eventId, event, endpointId, tenant, round = 1, createdAt } = delivery;
  return {
    id,
    eventId,
    event,
    endpointId,
    origin: originOf(delivery),
    tenant,
    status,
    attemptsMade: attempts,
    round,
    createdAt: new Date(createdAt),
    updatedAt: new Date(updatedAt),
    nextAttemptAt: nextAttemptAt === undefined ? undefined : new Date(nextAttemptAt),
    failureReason: reason,
  };
}

/** The trace that the publish belonged to. */
export function traceIdOf({ trace }: ListedOutgoing['delivery']): string | undefined {
  return trace?.traceparent.split('-')[1];
}

export function attemptViewOf(recorded: DeliveryAttempt): WebhookAttemptView {
  const { attempt, at, method = 'POST', durationMs, statusCode, reason, answer } = recorded;
  return {
    attempt,
    at: new Date(at),
    method,
    statusCode,
    durationMs,
    failureReason: reason,
    answer,
  };
}

export function statsOf(counts: readonly DeliveryCounts[], now: number): WebhookDeliveryStats {
  const endpoints = counts.map(({ oldestDue, ...count }) => ({
    ...count,
    lag: oldestDue === undefined ? 0 : Math.max(0, now - oldestDue),
  }));
  const all: DeliveryStanding = endpoints.reduce(
    (sum, { pending, delivered, dead, lag }) => ({
      pending: sum.pending + pending,
      delivered: sum.delivered + delivered,
      dead: sum.dead + dead,
      lag: Math.max(sum.lag, lag),
    }),
    { pending: 0, delivered: 0, dead: 0, lag: 0 },
  );
  return { ...all, endpoints };
}

/** The path and the query of a URL may hold credentials. */
function originOf({ url }: ListedOutgoing['delivery']): string | undefined {
  return url !== undefined && URL.canParse(url) ? new URL(url).origin : undefined;
}
