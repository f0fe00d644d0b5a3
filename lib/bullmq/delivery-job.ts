import type { Job } from 'bullmq';
import type { FailureReason } from '../publisher/attempt/attempt-result.interface.js';
import type { DeadDelivery, KnownDelivery } from '../publisher/queue/delivery-queue.js';
import type { WebhookDelivery } from '../publisher/queue/webhook-delivery.interface.js';

/** What a job holds: the delivery, its octets as base64, and what became of its attempts. No token, no secret. */
export interface DeliveryJobData {
  readonly delivery: Omit<WebhookDelivery, 'payload'> & {
    readonly payload: { kind: 'json' | 'bytes'; contentType: string; base64?: string };
  };
  /** Attempts that have failed in this round. */
  readonly attempts: number;
  /** Why the last of them failed. */
  readonly reason?: FailureReason;
  /** When it is due, in epoch milliseconds. */
  readonly dueAt: number;
  /** Times in a row that the handler itself has thrown. */
  readonly throws: number;
}

/** A job of the queue; its result is the number of attempts that delivered it. */
export type DeliveryJob = Job<DeliveryJobData, number>;

export function jobData(delivery: WebhookDelivery, dueAt: number): DeliveryJobData {
  const { kind, contentType, bytes } = delivery.payload;
  const base64 = bytes === undefined ? undefined : Buffer.from(bytes).toString('base64');
  const payload = { kind, contentType, ...(base64 !== undefined && { base64 }) };
  return { delivery: { ...delivery, payload }, attempts: 0, dueAt, throws: 0 };
}

export function deliveryOf({ delivery }: DeliveryJobData): WebhookDelivery {
  const { kind, contentType, base64 } = delivery.payload;
  const bytes = base64 === undefined ? undefined : Buffer.from(base64, 'base64');
  return { ...delivery, payload: { kind, contentType, bytes } };
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
  const { attempts, reason, dueAt: nextAttemptAt } = job.data;
  const pending = { id, status: 'pending', attempts, nextAttemptAt } as const;
  return reason === undefined ? pending : { ...pending, reason };
}

export function deadDelivery(job: DeliveryJob): DeadDelivery {
  return {
    delivery: deliveryOf(job.data),
    ...readFailure(job.failedReason),
    diedAt: job.finishedOn ?? job.timestamp,
  };
}
