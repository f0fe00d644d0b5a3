import {
  type DeliveryAttempt,
  type DeliveryRecord,
  type DeliveryState,
  type DeliveryStatus,
  type FailureReason,
  type DeliveryPayload,
  type WebhookDelivery,
  type DeliveryRun,
  type SignedFacts,
  deliveryLane,
  stateAfterRun,
} from '../queue/webhook-delivery.js';
import type { DeliveryCounts, ListedDelivery, EnqueuedDelivery } from '../queue/webhook-queue.js';
import type { Row } from './database.js';

/** The members of a delivery that have a column of their own. */
const TEXT_COLUMNS = {
  event_id: 'eventId',
  event: 'event',
  endpoint_id: 'endpointId',
  tenant: 'tenant',
  subject: 'subject',
  ordering_key: 'orderingKey',
} as const;

/** The JSON lists of `record`: rows, and their payloads, of which deliveries of one event share one. */
export function deliveryRows(deliveries: readonly EnqueuedDelivery[]): {
  readonly given: string;
  readonly payloads: string;
} {
  const payloads = [...new Set(deliveries.map(({ delivery }) => delivery.payload.bytes))];
  const places = new Map(payloads.map((bytes, index) => [bytes, index + 1]));
  const rows = deliveries.map((item, place) => ({
    ...deliveryRow(item),
    place,
    payload: places.get(item.delivery.payload.bytes),
  }));
  return {
    given: JSON.stringify(rows),
    payloads: JSON.stringify(payloads.map((bytes) => bytes && base64Of(bytes))),
  };
}

function deliveryRow({ delivery, notBefore }: EnqueuedDelivery): object {
  const { id, payload, createdAt, ...rest } = delivery;
  const { bytes: _, ...kind } = payload;
  const { sequence, ...members } = { sequence: undefined, ...rest };
  const details: Record<string, unknown> = { payload: kind, ...members };
  const row: Record<string, unknown> = { id, created: createdAt, due: notBefore, sequence };
  for (const [column, member] of Object.entries(TEXT_COLUMNS)) {
    const value = details[member];
    if (typeof value !== 'string') continue;
    row[column] = storableText(value);
    // A member that a column cannot hold, as in a token of another issuer, is stored exactly in the details.
    if (row[column] === value) delete details[member];
  }
  if (delivery.received !== undefined) row['receiver'] = storableText(delivery.received.receiver);
  row['lane'] = laneColumn(delivery);
  row['details'] = JSON.stringify(details);
  return row;
}

/** The lane of a delivery, as its column holds it. */
export function laneColumn(delivery: WebhookDelivery): string {
  return storableText(deliveryLane(delivery));
}

export interface ClaimedDelivery {
  /** The key of its row. */
  readonly seq: string;
  readonly id: string;
  /** The fencing token: how often the delivery was claimed. */
  readonly claim: number;
  readonly lane: string;
  /** Whether later deliveries of its key wait for it. */
  readonly holdsKey: boolean;
  /** Failed attempts of this round. */
  readonly attempts: number;
  /** How often in a row the handler threw. */
  readonly throws: number;
  /** In a lane with limits: names its start among those of the lane. */
  readonly slot?: string | undefined;
  /** The limits of its lane, in the form of `limitsKey`; absent if it has none. */
  readonly limits?: string | undefined;
  /** @throws if the record is damaged */
  readonly read: () => WebhookDelivery;
}

/** @param limits - of its lane, in the form of `limitsKey`; absent if it has none */
export function claimedDelivery(row: Row, limits?: string): ClaimedDelivery {
  const [seq, claim] = [String(row['seq']), Number(row['claim'])];
  return {
    seq,
    id: row['id'] as string,
    claim,
    lane: row['lane'] as string,
    holdsKey: row['holds_key'] === true,
    attempts: Number(row['attempts']),
    throws: Number(row['throws']),
    slot: limits === undefined ? undefined : `${seq}:${claim}`,
    limits,
    read: () => recordOf(row).delivery,
  };
}

/** An outcome as a row for `recordOutcomes`. */
export interface OutcomeRow extends Pick<
  ClaimedDelivery,
  'seq' | 'id' | 'claim' | 'attempts' | 'throws' | 'lane' | 'slot'
> {
  /** Epoch milliseconds until which its receiver is overloaded. */
  readonly overloaded?: number | undefined;
  readonly status: DeliveryStatus;
  /** Epoch milliseconds; absent if it stays as it is. */
  readonly due?: number | undefined;
  readonly reason?: FailureReason | undefined;
  readonly blocks_key?: boolean | undefined;
  /** Whether the next delivery of its key may start. */
  readonly releases: boolean;
}

/**
 * @param run - `undefined` if the handler threw
 * @param now - epoch milliseconds
 */
export function outcomeRow(
  claimed: ClaimedDelivery,
  run: DeliveryRun | undefined,
  now: number,
): OutcomeRow {
  const { blocksKey, ...state } = stateAfterRun(claimed, run, now);
  return {
    overloaded: run?.overloadedUntil,
    ...attemptColumns(run?.attempt),
    ...releasedRow(claimed),
    ...state,
    blocks_key: blocksKey,
    releases: claimed.holdsKey && state.status !== 'pending' && blocksKey !== true,
  };
}

/** The row that returns a claimed delivery to the queue without a change. */
export function releasedRow(claimed: ClaimedDelivery): OutcomeRow {
  const { seq, id, claim, attempts, throws, lane, slot } = claimed;
  return { seq, id, claim, status: 'pending', attempts, throws, lane, slot, releases: false };
}

function attemptColumns(attempt: DeliveryAttempt | undefined): object {
  if (attempt === undefined) return {};
  const { answer, signed } = attempt;
  return {
    attempt: attempt.attempt,
    started: attempt.at,
    duration: attempt.durationMs,
    method: attempt.method,
    status_code: attempt.statusCode,
    failure: attempt.reason,
    answer: answer && storableText(answer),
    signed: signed && JSON.stringify(signed),
  };
}

/** A row with its payload as a record. */
export function recordOf(row: Row): DeliveryRecord {
  const { delivery, ...state } = listedDelivery(row);
  const octets = row['payload'] as Uint8Array | null;
  const kind = (JSON.parse(row['details'] as string) as { payload: DeliveryPayload }).payload;
  const payload = { ...kind, bytes: octets === null ? undefined : Buffer.from(octets) };
  return { delivery: { payload, ...delivery }, ...state };
}

/** A row without its payload. */
export function listedDelivery(row: Row): ListedDelivery {
  const { payload: _, ...details } = JSON.parse(row['details'] as string) as WebhookDelivery;
  const columns = Object.entries(TEXT_COLUMNS)
    .filter(([column]) => row[column] !== null)
    .map(([column, member]) => [member, row[column]]);
  const identity = {
    id: row['id'],
    createdAt: Number(row['created']),
    ...(row['sequence'] !== null && { sequence: Number(row['sequence']) }),
  };
  const delivery = Object.assign(Object.fromEntries(columns), details, identity);
  return { delivery: delivery as ListedDelivery['delivery'], ...stateOf(row) };
}

function stateOf(row: Row): DeliveryState {
  const status = row['status'] as DeliveryStatus;
  return {
    status,
    attempts: Number(row['attempts']),
    nextAttemptAt: status === 'pending' ? Number(row['due']) : undefined,
    reason: optional(row['reason']) as DeliveryState['reason'],
    updatedAt: Number(row['updated']),
    isLimited: status === 'pending' && row['limited'] === true ? true : undefined,
    payloadDropped: row['payload_dropped'] === true ? true : undefined,
    keyState: keyStateOf(row),
  };
}

function keyStateOf(row: Row): DeliveryState['keyState'] {
  if (row['holds_key'] !== true || row['status'] === 'delivered') return undefined;
  if (row['status'] === 'dead') return 'blocking';
  return row['held'] === true ? 'waiting' : undefined;
}

export function attemptOf(row: Row): DeliveryAttempt {
  return {
    attempt: Number(row['attempt']),
    at: Number(row['started']),
    durationMs: Number(row['duration']),
    method: optional(row['method']) as DeliveryAttempt['method'],
    statusCode: optional(row['status_code']) as number | undefined,
    reason: optional(row['reason']) as DeliveryAttempt['reason'],
    answer: optional(row['answer']) as string | undefined,
    signed:
      row['signed'] === null ? undefined : (JSON.parse(row['signed'] as string) as SignedFacts),
  };
}

export function countsOf(row: Row): DeliveryCounts {
  return {
    endpointId: optional(row['endpoint_id']) as string | undefined,
    tenant: optional(row['tenant']) as string | undefined,
    receiver: optional(row['receiver']) as string | undefined,
    at: row['at'] === null ? undefined : Number(row['at']),
    pending: Number(row['pending']),
    delivered: Number(row['delivered']),
    dead: Number(row['dead']),
    held: Number(row['held']) || undefined,
    oldestDue: row['due'] === null ? undefined : Number(row['due']),
  };
}

function optional(value: unknown): unknown {
  return value === null ? undefined : value;
}

function base64Of({ buffer, byteOffset, byteLength }: Uint8Array): string {
  return Buffer.from(buffer, byteOffset, byteLength).toString('base64');
}

/** Replaces what PostgreSQL cannot store in a string: NUL and lone surrogates. */
export function storableText(text: string): string {
  return Buffer.from(text).toString().replaceAll('\0', '\uFFFD');
}
