import type { Job } from 'bullmq';
import { type DeliveryProgress, pendingReceipt, receiptFacts } from '../queue/delivery-progress.js';
import type { FailureReason } from '../queue/failure-reason.js';
import { deliveryOfStored, storedDelivery, type StoredDelivery } from '../queue/stored-delivery.js';
import type { WebhookDelivery } from '../queue/webhook-delivery.interface.js';
import type { DeadDelivery, KnownDelivery } from '../queue/webhook-queue.js';

/** The data of a job. */
export interface DeliveryJobData extends DeliveryProgress {
  readonly delivery: StoredDelivery;
}

/** A job; its result is the number of attempts. */
export type DeliveryJob = Job<DeliveryJobData, number>;

export function jobData(delivery: WebhookDelivery, dueAt: number): DeliveryJobData {
  return { delivery: storedDelivery(delivery), attempts: 0, dueAt, throws: 0 };
}

export function deliveryOf({ delivery }: DeliveryJobData): WebhookDelivery {
  return deliveryOfStored(delivery);
}

/** The failure of a dead job, as dashboards show it and {@link readFailure} parses it. */
export function failureText(reason: FailureReason, attempts: number): string {
  return `${reason} after ${attempts} ${attempts === 1 ? 'attempt' : 'attempts'}`;
}

function readFailure(text: string): { reason: FailureReason; attempts: number } {
  const [, reason = 'unknown', attempts = '0'] = /^(\S+) after (\d+) attempts?$/.exec(text) ?? [];
  return { reason: reason as FailureReason, attempts: Number(attempts) };
}

/** @param now - epoch milliseconds */
export function receiptOf(job: DeliveryJob, state: string, now: number): KnownDelivery {
  const facts = receiptFacts(job.data.delivery);
  if (state === 'completed') return { ...facts, status: 'delivered', attempts: job.returnvalue };
  if (state === 'failed') return { ...facts, status: 'dead', ...readFailure(job.failedReason) };
  // A job that was brought forward keeps its old time in its data: writing it would race with the worker's own update.
  const dueAt = state === 'delayed' ? job.data.dueAt : Math.min(job.data.dueAt, now);
  return pendingReceipt(facts, { ...job.data, dueAt });
}

export function deadDelivery(job: DeliveryJob): DeadDelivery {
  return {
    delivery: deliveryOf(job.data),
    ...readFailure(job.failedReason),
    diedAt: job.finishedOn ?? job.timestamp,
  };
}

/**
 * Makes a dead or waiting job due now.
 *
 * @param now - epoch milliseconds
 * @returns whether the job was dead or waited for its next attempt
 */
export async function makeDue(job: DeliveryJob, now: number): Promise<boolean> {
  switch (await job.getState()) {
    case 'failed':
      await job.updateData(jobData(deliveryOf(job.data), now));
      return changedState(job, 'failed', async () => job.retry('failed'));
    case 'delayed':
      return changedState(job, 'delayed', async () => job.promote());
    default:
      return false;
  }
}

/** @returns `false` if the job had left the state before the change */
async function changedState(
  job: DeliveryJob,
  state: 'failed' | 'delayed',
  change: () => Promise<void>,
): Promise<boolean> {
  try {
    await change();
    return true;
  } catch (error) {
    if ((await job.getState()) === state) throw error;
    return false;
  }
}
