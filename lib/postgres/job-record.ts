import { createHash } from 'node:crypto';
import type { JobInsert } from 'pg-boss';
import type { FailureReason } from '../queue/failure-reason.js';
import {
  deliveryLane,
  deliveryOfStored,
  storedDelivery,
  type StoredDelivery,
} from '../queue/stored-delivery.js';
import { pendingReceipt, receiptFacts, type DeliveryProgress } from '../queue/delivery-progress.js';
import type { DeadDelivery, EnqueuedDelivery, KnownDelivery } from '../queue/webhook-queue.js';

/** The data of a job. It holds no token and no secret. */
export interface JobData extends DeliveryProgress {
  readonly delivery: StoredDelivery;
}

/** The output of a finished job. */
export interface JobOutput {
  readonly attempts?: number;
  readonly reason?: FailureReason;
}

/** A job as `find` reads it. */
export interface JobState {
  readonly id: string;
  readonly state: 'created' | 'retry' | 'active' | 'completed' | 'cancelled' | 'failed';
  readonly progress: DeliveryProgress;
  readonly contentDigest: string | null;
  readonly output: JobOutput | null;
}

/** Seconds: a delivery leaves the queue by an outcome, and never expires. */
const FOREVER = 2 ** 31 - 1;
/** Seconds, the most that pg-boss accepts. The heartbeat is the lease. */
const MAX_EXPIRATION = 86_400;
/** Epoch seconds in 2033: the distance to every due time of this century, in seconds, fits an integer of 32 bits. */
const PRIORITY_ZERO = 2_000_000_000;

/**
 * The UUID that pg-boss identifies a job by, derived from the delivery's id, so that a second insert of the same delivery
 * conflicts with the first.
 *
 * @see RFC 9562, section 5.8
 */
export function jobId(deliveryId: string): string {
  const bytes = createHash('sha256').update(deliveryId).digest().subarray(0, 16);
  bytes[6] = (bytes[6]! & 0x0f) | 0x80;
  bytes[8] = (bytes[8]! & 0x3f) | 0x80;
  return bytes.toString('hex').replace(/^(.{8})(.{4})(.{4})(.{4})/, '$1-$2-$3-$4-');
}

/**
 * The due time as a priority: the earlier, the higher. The index that pg-boss fetches by then has the jobs in the order of their due
 * times, and a claim reads none that is not due.
 */
export function priorityAt(dueAt: number): number {
  return Math.max(-FOREVER, PRIORITY_ZERO - Math.floor(dueAt / 1_000));
}

/** @param place - among the deliveries that are recorded together, which start in this order; 0 for the first */
export function jobOf({ delivery, notBefore }: EnqueuedDelivery, place: number): JobInsert {
  const data: JobData = {
    delivery: storedDelivery(delivery),
    attempts: 0,
    dueAt: notBefore,
    throws: 0,
  };
  return {
    id: jobId(delivery.id),
    data,
    startAfter: startAfter(notBefore, place),
    priority: priorityAt(notBefore),
    group: { id: deliveryLane(delivery) },
  };
}

/** The due time, with the place as its microseconds: rows of one statement have the same time of creation. */
function startAfter(notBefore: number, place: number): string {
  const milliseconds = new Date(notBefore).toISOString().slice(0, -1);
  return `${milliseconds}${String(Math.min(place, 999)).padStart(3, '0')}Z`;
}

/** Settings of the queue in pg-boss. It counts claims as retries; attempts are counted in {@link JobData}. */
export function jobQueueOptions(lease: number, keepDelivered: number) {
  return {
    retryLimit: FOREVER,
    retryDelay: 0,
    retryBackoff: false,
    retentionSeconds: FOREVER,
    expireInSeconds: MAX_EXPIRATION,
    heartbeatSeconds: Math.ceil(lease / 1_000),
    deleteAfterSeconds: Math.ceil(keepDelivered / 1_000),
  };
}

/** The receipt of a delivery, from its job. */
export function receiptOf(id: string, job: JobState): KnownDelivery {
  const { state, progress, output, contentDigest } = job;
  const facts = receiptFacts({ id, contentDigest });
  const attempts = output?.attempts ?? progress.attempts;
  if (state === 'completed') return { ...facts, status: 'delivered', attempts };
  if (state === 'failed' || state === 'cancelled') {
    return { ...facts, status: 'dead', attempts, reason: output?.reason ?? CANCELLED };
  }
  return pendingReceipt(facts, progress);
}

/** The reason for a job that was cancelled in pg-boss itself, such as on a dashboard. */
const CANCELLED: FailureReason = 'aborted';

/** A dead delivery, from its job. */
export function deadDelivery(job: {
  readonly data: JobData;
  readonly output: JobOutput | null;
  readonly diedAt: number;
}): DeadDelivery {
  const { data, output, diedAt } = job;
  return {
    delivery: deliveryOfStored(data.delivery),
    attempts: output?.attempts ?? data.attempts,
    reason: output?.reason ?? CANCELLED,
    diedAt,
  };
}
