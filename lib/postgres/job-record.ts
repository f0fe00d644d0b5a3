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

/** What a job holds. No token, no secret. */
export interface JobData extends DeliveryProgress {
  readonly delivery: StoredDelivery;
}

/** What a job that is done leaves behind. */
export interface JobOutput {
  readonly attempts?: number;
  readonly reason?: FailureReason;
}

/** A job as it is asked for by its id. */
export interface JobState {
  readonly id: string;
  readonly state: 'created' | 'retry' | 'active' | 'completed' | 'cancelled' | 'failed';
  readonly progress: DeliveryProgress;
  readonly contentDigest: string | null;
  readonly output: JobOutput | null;
}

/** Seconds; a delivery leaves the queue by an outcome, and never because it has waited for long. */
const FOR_EVER = 2 ** 31 - 1;
/** Seconds; the longest pg-boss takes. The lease is a matter of the heartbeat. */
const LONGEST_ATTEMPT = 86_400;
/** In 2033, so that every due time of this century, in seconds, is as far from it as an integer of 32 bits reaches. */
const PRIORITY_ZERO = 2_000_000_000;

/**
 * pg-boss knows jobs by a UUID; this one follows from the delivery's id, so that a second insert of the same delivery
 * finds the first.
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
 * The due time as a priority: what is due first ranks first, and the index that pg-boss fetches by then yields the jobs in
 * the order they are due, without looking at any that are not.
 */
export function priorityAt(dueAt: number): number {
  return Math.max(-FOR_EVER, PRIORITY_ZERO - Math.floor(dueAt / 1_000));
}

export function jobOf({ delivery, notBefore }: EnqueuedDelivery): JobInsert {
  const data: JobData = {
    delivery: storedDelivery(delivery),
    attempts: 0,
    dueAt: notBefore,
    throws: 0,
  };
  return {
    id: jobId(delivery.id),
    data,
    startAfter: new Date(notBefore),
    priority: priorityAt(notBefore),
    group: { id: deliveryLane(delivery) },
  };
}

/** What every job of the queue has in common. Attempts are counted here: pg-boss counts claims. */
export function jobQueueOptions(lease: number, keepDelivered: number) {
  return {
    retryLimit: FOR_EVER,
    retryDelay: 0,
    retryBackoff: false,
    retentionSeconds: FOR_EVER,
    expireInSeconds: LONGEST_ATTEMPT,
    heartbeatSeconds: Math.ceil(lease / 1_000),
    deleteAfterSeconds: Math.ceil(keepDelivered / 1_000),
  };
}

/** What the queue knows of a delivery, from its job. */
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

/** Ended by somebody who used pg-boss itself, a dashboard for one. */
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
