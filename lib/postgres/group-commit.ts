import { AsyncResource } from 'node:async_hooks';
import type { WebhookClock } from '../clock/webhook-clock.js';
import type { DeliveryRecord } from '../queue/webhook-delivery.js';
import type { EnqueuedDelivery, EnqueueOptions } from '../queue/webhook-queue.js';

/** Groups that are recorded at the same time. */
const MAX_GROUPS = 2;
/** Deliveries of a group. A call with more of them is a group of its own. */
export const MAX_GROUP_DELIVERIES = 500;
/** Bytes of payload of a group. A call with more of them is a group of its own. */
export const MAX_GROUP_BYTES = 1_048_576;
/** Milliseconds after which a group that is still being recorded no longer holds up the next one. */
const MAX_HOLD = 5_000;

/** For each delivery what was recorded before; `undefined` if it was recorded now. */
type Records = readonly (DeliveryRecord | undefined)[];

/** How the deliveries of one or more calls are recorded. */
export interface GroupOptions extends Pick<EnqueueOptions, 'check'> {
  /** Without it, they may fail instead of waiting for a lock. */
  readonly waits: boolean;
}

interface GroupCommitParts {
  /** Records the deliveries of one or more calls in one commit: all or none. */
  readonly record: (
    deliveries: readonly EnqueuedDelivery[],
    options: GroupOptions,
  ) => Promise<Records>;
  /** Whether an error concerns every call alike, such as a lost connection. */
  readonly isOutage: (error: unknown) => boolean;
  readonly clock: WebhookClock;
}

interface PendingCall extends Pick<EnqueueOptions, 'check'> {
  readonly deliveries: readonly EnqueuedDelivery[];
  readonly bytes: number;
  readonly resolve: (records: Records) => void;
  readonly reject: (error: unknown) => void;
  /** The async context of the call. */
  readonly context: AsyncResource;
}

/**
 * Records concurrent calls in groups, one commit per group, so that the cost of a commit is shared.
 *
 * A call starts a group at once while fewer than two are being recorded; those that arrive meanwhile form the next one. No call
 * waits for a timer. Each call resolves after the commit that contains it, and stays all-or-nothing. If a group fails, each of its
 * calls is repeated by itself, so that a delivery that cannot be stored, or is refused by the call's check, fails only its own call.
 */
export class GroupCommit {
  private readonly waiting: PendingCall[] = [];
  private groups = 0;
  private isStarting = false;
  private unanswered = 0;
  private onSettled: (() => void)[] = [];

  constructor(private readonly parts: GroupCommitParts) {}

  /** Records all of the deliveries or none; resolves after the commit. */
  async commitInGroup(
    deliveries: readonly EnqueuedDelivery[],
    check?: EnqueueOptions['check'],
  ): Promise<Records> {
    this.unanswered++;
    try {
      return await new Promise<Records>((resolve, reject) => {
        const context = new AsyncResource('WebhookQueue');
        const bytes = bytesOf(deliveries);
        this.waiting.push({ deliveries, check, bytes, resolve, reject, context });
        this.startGroup();
      });
    } finally {
      if (--this.unanswered === 0) for (const resolve of this.onSettled.splice(0)) resolve();
    }
  }

  /** Resolves when no call is unanswered. */
  async settled(): Promise<void> {
    if (this.unanswered > 0) await new Promise<void>((resolve) => this.onSettled.push(resolve));
  }

  private startGroup(): void {
    if (this.isStarting || this.groups >= MAX_GROUPS || this.waiting.length === 0) return;
    this.isStarting = true;
    // The other calls of this turn join the group.
    queueMicrotask(() => {
      this.isStarting = false;
      const calls = this.takeGroup();
      // The statements are traced with one of these calls, not with one whose commit has just ended.
      void calls[0]!.context.runInAsyncScope(this.commit, this, calls);
      this.startGroup();
    });
  }

  private takeGroup(): PendingCall[] {
    let [count, deliveries, bytes] = [0, 0, 0];
    for (const call of this.waiting) {
      deliveries += call.deliveries.length;
      bytes += call.bytes;
      if (count > 0 && (deliveries > MAX_GROUP_DELIVERIES || bytes > MAX_GROUP_BYTES)) break;
      count++;
    }
    return this.waiting.splice(0, count);
  }

  private async commit(calls: readonly PendingCall[]): Promise<void> {
    const { record, isOutage, clock } = this.parts;
    let isHeld = true;
    this.groups++;
    const release = (): void => {
      cancel();
      if (!isHeld) return;
      isHeld = false;
      this.groups--;
      this.startGroup();
    };
    const cancel = clock.wakeAt(clock.now() + MAX_HOLD, release);
    try {
      const all = calls.flatMap(({ deliveries }) => deliveries);
      const check = (records: Records): void =>
        forEachCall(calls, records, (call, own) => call.check?.(own));
      const isChecked = calls.some((call) => call.check !== undefined);
      const records = await record(all, { waits: false, ...(isChecked && { check }) });
      forEachCall(calls, records, ({ resolve }, own) => resolve(own));
    } catch (error) {
      for (const { deliveries, check, resolve, reject, context } of calls) {
        if (isOutage(error)) reject(error);
        else {
          const again = async (): Promise<Records> => record(deliveries, { waits: true, check });
          context.runInAsyncScope(again).then(resolve, reject);
        }
      }
    }
    release();
  }
}

/** Passes each call the records of its own deliveries. */
function forEachCall(
  calls: readonly PendingCall[],
  records: Records,
  use: (call: PendingCall, own: Records) => void,
): void {
  let end = 0;
  for (const call of calls) use(call, records.slice(end, (end += call.deliveries.length)));
}

function bytesOf(deliveries: readonly EnqueuedDelivery[]): number {
  return deliveries.reduce((sum, { delivery }) => sum + (delivery.payload.bytes?.length ?? 0), 0);
}
