import type { Job } from 'bullmq';
import type { FailureReason } from '../queue/failure-reason.js';
import { pendingReceipt, type DeliveryProgress } from '../queue/delivery-progress.js';
import type { DeadDelivery, KnownDelivery } from '../queue/delivery-queue.js';
import { deliveryOfStored, storedDelivery, type StoredDelivery } from '../queue/stored-delivery.js';
import type { WebhookDelivery } from '../queue/webhook-delivery.interface.js';

/** What a job holds: the delivery, and what became of its attempts. */
export interface DeliveryJobData extends DeliveryProgress {
  readonly delivery: StoredDelivery;
}

/** A job of the queue; its result is the number of attempts that delivered it. */
export type DeliveryJob = Job<DeliveryJobData, number>;

export function jobData(delivery: WebhookDelivery, dueAt: number): DeliveryJobData {
  return { delivery: storedDelivery(delivery), attempts: 0, dueAt, throws: 0 };
}

export function deliveryOf({ delivery }: DeliveryJobData): WebhookDelivery {
  return deliveryOfStored(delivery);
}

/** How a job that was given up says why: read by people in a dashboard, and by {@link readFailure}. */
export function failureText(reason: FailureReason, attempts: number): string {
  return `${reason} after ${attempts} ${attempts === 1 ? 'attempt' : 'attempts'}`;
}

function readFailure(text: string): { reason: FailureReason; attempts: number } {
  const [, reason = 'unknown', attempts = '0'] = /^(\S+) after (\d+) attempts?$/.exec(text) ?? [];
  return { reason: reason as FailureReason, attempts: Number(attempts) };
}

/** What the queue knows of a job it has. */
export function receiptOf(job: DeliveryJob, state: string): KnownDelivery {
  const id = job.id!;
  if (state === 'completed') return { id, status: 'delivered', attempts: job.returnvalue };
  if (state === 'failed') return { id, status: 'dead', ...readFailure(job.failedReason) };
  return pendingReceipt(id, job.data);
}

export function deadDelivery(job: DeliveryJob): DeadDelivery {
  return {
    delivery: deliveryOf(job.data),
    ...readFailure(job.failedReason),
    diedAt: job.finishedOn ?? job.timestamp,
  };
}
