import type { Job, Queue } from 'bullmq';
import {
  type DeliveryAttempt,
  type DeliveryFacts,
  type DeliveryRecord,
  type FailureReason,
  type DeliveryRun,
  deliveryLane,
  type WebhookDelivery,
  stateAfterRun,
} from '../queue/webhook-delivery.js';
import type { EnqueuedDelivery } from '../queue/webhook-queue.js';

const MAX_ATTEMPTS = 20;
/** Of a change to a job whose worker moves it at the same time. */
const MAX_TRIES = 3;
const PREFIX = 'd-';

/** A delivery as JSON. */
type StoredDelivery = DeliveryFacts & { readonly payload: StoredPayload };

interface StoredPayload {
  readonly kind: 'json' | 'bytes';
  readonly contentType: string;
  readonly base64?: string;
  /** It had bytes, which were dropped. */
  readonly dropped?: true;
}

/** The data of a job: the delivery, and its state until it is delivered. */
export interface DeliveryJobData {
  readonly delivery: StoredDelivery;
  readonly status: 'pending' | 'dead';
  /** Failed attempts of this round. */
  readonly attempts: number;
  /** When the next run is due, in epoch milliseconds. */
  readonly dueAt: number;
  /** How often in a row the handler threw. */
  readonly throws: number;
  /** The job's `stalledCounter` when runs without an outcome were counted last; absent for 0. */
  readonly stalls?: number | undefined;
  /** See {@link holdsKey}. */
  readonly holdsKey?: boolean | undefined;
  readonly reason?: FailureReason | undefined;
  readonly updatedAt: number;
  /** The last attempts of all rounds. */
  readonly history: readonly DeliveryAttempt[];
}

/**
 * The result of a job, which BullMQ stores as it completes the job, and copies to the events of the queue: these outlive the job, so
 * the result holds nothing that a receiver has answered.
 */
export interface DeliveredResult {
  readonly attempts: number;
  readonly updatedAt: number;
  readonly attempt?: Omit<DeliveryAttempt, 'answer'> | undefined;
}

/** A row in the log of a job, which is deleted with the job: the answer to the attempt that started at this time. */
type AnswerRow = readonly [at: number, answer: string];

/** The id of a delivery's job. With a prefix, no id is a number, or names a key that BullMQ itself uses. */
export function jobIdOf(id: string): string {
  return `${PREFIX}${id}`;
}

export function deliveryIdOf(jobId: string): string {
  return jobId.slice(PREFIX.length);
}

export type DeliveryJob = Job<DeliveryJobData, DeliveredResult>;

/** The progress of a job that was skipped: unlike the data, a redelivery at the same time does not write it. */
export const SKIPPED = 'skipped';

/** Whether later deliveries of its ordering key wait for a job, unless it is delivered. */
export function holdsKey({ data, progress }: DeliveryJob): boolean {
  return data.holdsKey === true && progress !== SKIPPED;
}

/** The job of a delivery; `undefined` if it holds none. */
export async function jobOf(queue: Queue, id: string): Promise<DeliveryJob | undefined> {
  const job = (await queue.getJob(jobIdOf(id))) as DeliveryJob | undefined;
  return job && holdsDelivery(job) ? job : undefined;
}

/** Whether the server has evicted a job: then all that is left is what BullMQ wrote when it fetched the job. */
export function isEvicted({ name }: Partial<DeliveryJob>): boolean {
  return name === undefined;
}

/** Whether a job holds a delivery that this version can read: others may use the queue, or change its jobs. */
export function holdsDelivery({ data }: DeliveryJob): boolean {
  try {
    const { delivery, history, attempts, throws, dueAt } = data;
    const hasForm = Array.isArray(history) && Number.isFinite(attempts + throws + dueAt);
    return hasForm && typeof delivery.payload === 'object' && deliveryLane(delivery) !== '';
  } catch {
    return false;
  }
}

/** @param sequence - of a delivery with an ordering key that takes its turn */
export function newJobData(
  { delivery, notBefore }: EnqueuedDelivery,
  sequence?: number,
): DeliveryJobData {
  return {
    delivery: { ...storedDelivery(delivery), ...(sequence !== undefined && { sequence }) },
    holdsKey: sequence === undefined ? undefined : true,
    status: 'pending',
    attempts: 0,
    dueAt: notBefore,
    throws: 0,
    updatedAt: delivery.createdAt,
    history: [],
  };
}

/**
 * The data after a run that did not deliver.
 *
 * @param run - `undefined` if the handler threw
 * @param now - epoch milliseconds
 */
export function dataAfter(
  data: DeliveryJobData,
  run: DeliveryRun | undefined,
  now: number,
): DeliveryJobData {
  const { status, attempts, throws, reason, due, blocksKey } = stateAfterRun(data, run, now);
  const isDead = status === 'dead';
  const history = run?.attempt === undefined ? data.history : [...data.history, run.attempt];
  return {
    ...data,
    status: isDead ? 'dead' : 'pending',
    attempts,
    throws,
    reason,
    dueAt: due ?? data.dueAt,
    holdsKey: isDead ? data.holdsKey === true && blocksKey === true : data.holdsKey,
    updatedAt: run === undefined ? data.updatedAt : now,
    history: history.slice(-MAX_ATTEMPTS),
  };
}

/** The data with the runs of a received event that have no outcome, because their processes died. */
export function withDiedRuns({ data, stalledCounter: stalls }: DeliveryJob): DeliveryJobData {
  const died = stalls - (data.stalls ?? 0);
  if (data.delivery.received === undefined || died <= 0) return data;
  return { ...data, stalls, attempts: data.attempts + died };
}

export function droppedPayload(data: DeliveryJobData): DeliveryJobData {
  const { base64: _, ...payload } = data.delivery.payload;
  return { ...data, delivery: { ...data.delivery, payload: { ...payload, dropped: true } } };
}

export function deliveryOf({ delivery }: DeliveryJobData): WebhookDelivery {
  const { kind, contentType, base64 } = delivery.payload;
  const bytes = base64 === undefined ? undefined : Buffer.from(base64, 'base64');
  return { ...delivery, payload: { kind, contentType, bytes } };
}

function storedDelivery(delivery: WebhookDelivery): StoredDelivery {
  const { kind, contentType, bytes } = delivery.payload;
  const base64 = bytes === undefined ? undefined : Buffer.from(bytes).toString('base64');
  return { ...delivery, payload: { kind, contentType, ...(base64 !== undefined && { base64 }) } };
}

/** The data of a dead delivery that starts a new round. */
export function newRound(data: DeliveryJobData, now: number): DeliveryJobData {
  const { delivery, history, holdsKey, stalls } = data;
  return {
    delivery,
    history,
    holdsKey,
    stalls,
    status: 'pending',
    attempts: 0,
    throws: 0,
    dueAt: now,
    updatedAt: now,
  };
}

/**
 * @param latest - when it is due at the latest, in epoch milliseconds: a job that was brought forward keeps its old
 *   time in its data, because writing it would race with the worker
 */
export function recordOf(job: DeliveryJob, latest = Infinity): DeliveryRecord {
  const { data, returnvalue } = job;
  const delivery = deliveryOf(data);
  if (isDelivered(job)) {
    const { attempts, updatedAt } = returnvalue;
    const payloadDropped = data.delivery.payload.dropped;
    return { delivery, status: 'delivered', attempts, updatedAt, payloadDropped };
  }
  const { attempts, reason, updatedAt } = data;
  // Until BullMQ has moved it, its worker owns it, and it cannot be redelivered yet.
  if (job.finishedOn !== undefined) {
    const keyState = holdsKey(job) ? 'blocking' : undefined;
    return { delivery, status: 'dead', attempts, reason, updatedAt, keyState };
  }
  const nextAttemptAt = Math.min(data.dueAt, latest);
  return { delivery, status: 'pending', attempts, nextAttemptAt, reason, updatedAt };
}

/** @param log - of the job */
export function attemptsOf(
  { data, returnvalue }: DeliveryJob,
  log: readonly string[],
): readonly DeliveryAttempt[] {
  const { attempt } = returnvalue ?? {};
  if (attempt === undefined) return data.history;
  // A run that was not recorded, or an operator, may have added others.
  const row = log.find((text) => text.startsWith(`[${attempt.at},`));
  if (row === undefined) return [...data.history, attempt];
  const [, answer] = JSON.parse(row) as AnswerRow;
  return [...data.history, { ...attempt, answer }];
}

export function answerRow({ at, answer }: DeliveryAttempt): string | undefined {
  return answer && JSON.stringify([at, answer] satisfies AnswerRow);
}

export function isDelivered({ finishedOn, returnvalue }: DeliveryJob): boolean {
  return finishedOn !== undefined && (returnvalue ?? undefined) !== undefined;
}

/** Also if its outcome is recorded and a crash kept BullMQ from moving it. */
export function isDead({ finishedOn, data }: DeliveryJob): boolean {
  return finishedOn !== undefined || data.status === 'dead';
}

/** The failure of a dead job, as dashboards show it. */
export function failureText({ reason, attempts }: DeliveryJobData): string {
  return `${reason} after ${attempts} ${attempts === 1 ? 'attempt' : 'attempts'}`;
}

/**
 * Changes a job that may leave its state, or be removed, meanwhile.
 *
 * @returns `false` if the job had left the state, or was removed, before the change
 */
export async function inState(
  job: DeliveryJob,
  state: 'failed' | 'delayed',
  change: () => Promise<void>,
): Promise<boolean> {
  for (let tries = 1; ; tries++) {
    try {
      await change();
      return true;
    } catch (error) {
      if ((await job.getState()) !== state) return false;
      // It may have entered the state after the change failed.
      if (tries === MAX_TRIES) throw error;
    }
  }
}
