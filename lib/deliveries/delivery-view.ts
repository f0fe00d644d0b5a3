import type { OutgoingDelivery } from '../queue/webhook-delivery.interface.js';
import type { DeliveryCounts, LoggedAttempt, LoggedDelivery } from './delivery-log.js';
import type {
  DeliveryStanding,
  WebhookAttemptView,
  WebhookDeliveryStats,
  WebhookDeliveryView,
} from './webhook-deliveries.interface.js';

/** A delivery without its payload, and of its URL only the origin. */
export function viewOf(logged: LoggedDelivery): WebhookDeliveryView {
  const { delivery, status, attempts, nextAttemptAt, reason, updatedAt } = logged;
  const { id, eventId, event, endpointId, tenant, round = 1, createdAt } = delivery;
  const origin = originOf(delivery);
  return {
    id,
    eventId,
    event,
    ...(endpointId !== undefined && { endpointId }),
    ...(origin !== undefined && { origin }),
    ...(tenant !== undefined && { tenant }),
    status,
    attemptsMade: attempts,
    round,
    createdAt: new Date(createdAt),
    updatedAt: new Date(updatedAt),
    ...(nextAttemptAt !== undefined && { nextAttemptAt: new Date(nextAttemptAt) }),
    ...(reason !== undefined && { failureReason: reason }),
  };
}

/** The trace that the publish belonged to. */
export function traceIdOf({ trace }: OutgoingDelivery): string | undefined {
  return trace?.traceparent.split('-')[1];
}

export function attemptViewOf(made: LoggedAttempt): WebhookAttemptView {
  const { attempt, at, method, durationMs, statusCode, reason, answer } = made;
  return {
    attempt,
    at: new Date(at),
    method,
    ...(statusCode !== undefined && { statusCode }),
    durationMs,
    ...(reason !== undefined && { failureReason: reason }),
    ...(answer !== undefined && { answer }),
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
function originOf({ url }: OutgoingDelivery): string | undefined {
  return url !== undefined && URL.canParse(url) ? new URL(url).origin : undefined;
}
