import type {
  DeliveryChange,
  DeliveryCounts,
  DeliveryStatus,
  LoggedAttempt,
  LoggedDelivery,
} from '../deliveries/delivery-log.js';
import type { FailureReason } from '../queue/failure-reason.js';
import type { WebhookDelivery } from '../queue/webhook-delivery.interface.js';
import type { Row } from './store-connection.js';

/** The members of a delivery that have no column. */
type DeliveryDetails = Omit<WebhookDelivery, 'payload'> & {
  readonly payload: Omit<WebhookDelivery['payload'], 'bytes'>;
};

/**
 * A delivery as a statement records it.
 *
 * @param due - epoch milliseconds
 * @param updatedAt - epoch milliseconds; a change that is older does not take it back to pending
 */
export function recordedRow(delivery: WebhookDelivery, due: number, updatedAt: number): object {
  const { id, eventId, event, endpointId, tenant, createdAt, payload, ...rest } = delivery;
  const { bytes, ...kind } = payload;
  return {
    id,
    event_id: eventId,
    event,
    endpoint_id: endpointId,
    tenant,
    // As a text within: what a payload's claims hold may be no text that PostgreSQL can have.
    details: JSON.stringify({ ...rest, payload: kind }),
    payload: bytes === undefined ? null : base64Of(bytes),
    due,
    created: createdAt,
    updated: updatedAt,
  };
}

/** One change as a statement makes it. */
export function changedRow(change: DeliveryChange): object {
  const { delivery, status, attempts, nextAttemptAt, reason, at, made } = change;
  const row = { id: delivery.id, status, attempts, due: nextAttemptAt, reason, at };
  if (made === undefined) return row;
  return {
    ...row,
    made_attempt: made.attempt,
    made_at: made.at,
    made_method: made.method,
    made_duration: made.durationMs,
    made_status: made.statusCode,
    made_reason: made.reason,
    made_answer: made.answer === undefined ? undefined : storableText(made.answer),
  };
}

export function loggedDeliveryOf(row: Row): LoggedDelivery {
  const { endpoint_id: endpointId, tenant, payload: octets, due, reason } = row;
  const { payload, ...rest } = JSON.parse(row['details'] as string) as DeliveryDetails;
  const bytes = octets === null ? undefined : Buffer.from(octets as Uint8Array);
  return {
    delivery: {
      ...rest,
      id: row['id'] as string,
      eventId: row['event_id'] as string,
      event: row['event'] as string,
      ...(endpointId !== null && { endpointId: endpointId as string }),
      ...(tenant !== null && { tenant: tenant as string }),
      payload: { ...payload, bytes },
      createdAt: Number(row['created']),
    },
    status: row['status'] as DeliveryStatus,
    attempts: Number(row['attempts']),
    ...(due !== null && { nextAttemptAt: Number(due) }),
    ...(reason !== null && { reason: reason as FailureReason }),
    updatedAt: Number(row['updated']),
  };
}

export function loggedAttemptOf(row: Row): LoggedAttempt {
  const { status_code: statusCode, reason, answer } = row;
  return {
    attempt: Number(row['attempt']),
    at: Number(row['made_at']),
    method: row['method'] as LoggedAttempt['method'],
    durationMs: Number(row['duration']),
    ...(statusCode !== null && { statusCode: Number(statusCode) }),
    ...(reason !== null && { reason: reason as FailureReason }),
    ...(answer !== null && { answer: answer as string }),
  };
}

export function deliveryCountsOf(row: Row): DeliveryCounts {
  const { endpoint_id: endpointId, tenant, due } = row;
  return {
    ...(endpointId !== null && { endpointId: endpointId as string }),
    ...(tenant !== null && { tenant: tenant as string }),
    pending: Number(row['pending']),
    delivered: Number(row['delivered']),
    dead: Number(row['dead']),
    ...(due !== null && { oldestDue: Number(due) }),
  };
}

function base64Of({ buffer, byteOffset, byteLength }: Uint8Array): string {
  return Buffer.from(buffer, byteOffset, byteLength).toString('base64');
}

/** An answer may hold anything; no text in PostgreSQL holds a NUL, or half a character. */
function storableText(text: string): string {
  return Buffer.from(text).toString().replaceAll('\0', '\uFFFD');
}
