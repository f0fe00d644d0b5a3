import { hash } from 'node:crypto';
import { inTime } from '../clock/webhook-clock.js';
import { isWebhookError, WebhookReplayError, WebhookStoreError } from '../errors/webhook.error.js';
import type { ReplayClaim, ReplayReservation, ReplayVerdict } from '../replay/replay-store.js';
import type { RequestBody } from '../request/body.js';
import { isTokenProfile } from '../token/webhook-token.constants.js';
import type { ResolvedReceiver } from './receiver-options.resolver.js';
import type { ReceiverReporter } from './receiver.reporter.js';
import { internalsOf, isReadOnDemand, type WebhookEvent } from './webhook-event.js';

/** Milliseconds for which an event waits for its reservation. */
const RESERVING_TIME = 9_000;
/** Milliseconds for which recording a handled event is tried. Senders usually wait 15 s or longer for an answer. */
const RECORDING_TIME = 9_000;
/** Milliseconds for which an answer waits until its event is freed, or recorded again. */
const RELEASING_TIME = 2_000;
/** Milliseconds between two attempts; each pause is twice as long as the one before. */
const SHORTEST_PAUSE = 100;
const LONGEST_PAUSE = 1_000;

/**
 * Reserves an event in the receiver's replay store.
 *
 * @param digest - of the body, if it identifies the content; otherwise the value of the data does
 * @returns `undefined` for a duplicate of an event that was handled before
 * @throws {@link WebhookReplayError}, {@link WebhookStoreError}
 */
export async function reserveEvent(
  event: WebhookEvent,
  digest: string | undefined,
  receiver: ResolvedReceiver,
): Promise<ReplayReservation | undefined> {
  const claim = replayClaim(event, digest, receiver);
  const verdict = await reserveInTime(claim, receiver).catch(storeFailed);
  switch (verdict.status) {
    case 'reserved':
      return verdict.reservation;
    case 'done':
      if (receiver.onDuplicate === 'reject') throw replayed();
      return undefined;
    case 'in-progress':
      throw new WebhookReplayError('in_progress', 'the same event is being handled now');
    case 'conflict':
      throw new WebhookReplayError(
        'replayed',
        'the id was used before with other content; a new event needs a new id',
      );
  }
}

function storeFailed(error: unknown): never {
  if (isWebhookError(error)) throw error;
  throw new WebhookStoreError('store_unavailable', 'the replay store cannot be reached', {
    cause: error,
  });
}

/** The replay claim by which an event is recognised when it is repeated. */
function replayClaim(
  event: WebhookEvent,
  digest: string | undefined,
  { clockTolerance, replayWindow, replayLease, clock, scheme }: ResolvedReceiver,
): ReplayClaim {
  const { receiver, issuer, id, jti, claims, profile } = event;
  const { partner } = scheme;
  // A sender of its own signs in the name of the receiver's only issuer, so its ids are the `txn` of that issuer's tokens.
  const isPartner = partner !== undefined && !isTokenProfile(profile);
  // A txn and a jti with the same value are different identities.
  const tokenKey = isPartner
    ? identity(receiver, partner, 'txn', id)
    : identity(receiver, issuer, 'jti', jti);
  // Twice: a shared store counts from this receiver's clock, and that of another one may be behind. Rounded up, since stores take
  // whole milliseconds and `exp` may have a fraction.
  const replayUntil = Math.ceil((claims.exp + 2 * clockTolerance) * 1_000);
  return {
    key: claims.txn === undefined ? tokenKey : identity(receiver, issuer, 'txn', id),
    tokenKey,
    fingerprint:
      digest === undefined
        ? contentFingerprint(event.event, event.data)
        : sha256(`${event.event}\n${digest}`),
    replayUntil,
    keepUntil: Math.max(replayUntil, clock.now() + replayWindow),
    lease: replayLease,
    issuer,
  };
}

/** The replay claim by which a run of a queued event is recognised: by its delivery. The event itself is `done` as soon as it is queued. */
export function handledClaim(
  deliveryId: string,
  { receiver, issuer }: WebhookEvent,
  { replayWindow, replayLease, clock }: ResolvedReceiver,
): ReplayClaim {
  const key = identity(receiver, issuer, 'handled', deliveryId);
  const now = clock.now();
  // The delivery id identifies the content too, and there is no token.
  return {
    key,
    tokenKey: key,
    fingerprint: key,
    replayUntil: now + replayLease,
    keepUntil: now + replayWindow,
    lease: replayLease,
    issuer,
  };
}

/** Length-prefixed, so that no choice of issuer and id collides with another pair. */
function identity(...parts: readonly string[]): string {
  let text = '';
  for (const part of parts) text += `${part.length}:${part}`;
  return sha256(text);
}

/**
 * Identifies the content of an event by its value, however it was sent: an event may first arrive in the token and then, after
 * a proxy refused the long header, as a body, and a sender may order its members differently. Numbers that are the same for a
 * handler are equal, such as 9007199254740992 and 9007199254740993.
 *
 * @param value - from `JSON.parse`, nested at most 64 levels; `undefined` for no data
 */
export function contentFingerprint(event: string, value: unknown): string {
  return sha256(`${event}\n${value === undefined ? '' : JSON.stringify(sortMembers(value))}`);
}

/** No member can replace a prototype here: data with such a name is refused before. */
function sortMembers(value: unknown): unknown {
  // A number beyond the range of a double, for which JSON.stringify would write null. No data has a member of this name.
  if (value === Infinity || value === -Infinity) return { ['__proto__']: String(value) };
  if (typeof value !== 'object' || value === null) return value;
  if (Array.isArray(value)) return value.map(sortMembers);
  const sorted: Record<string, unknown> = {};
  for (const name of Object.keys(value).sort()) {
    sorted[name] = sortMembers((value as Record<string, unknown>)[name]);
  }
  return sorted;
}

function sha256(text: string): string {
  return hash('sha256', text, 'base64url');
}

/**
 * Asks the replay store for a reservation.
 *
 * @throws what the store throws, and an error if it does not answer within {@link RESERVING_TIME}
 */
export async function reserveInTime(
  claim: ReplayClaim,
  { replayStore, clock, leases }: Pick<ResolvedReceiver, 'replayStore' | 'clock' | 'leases'>,
): Promise<ReplayVerdict> {
  // The store may have forgotten an event that is still being handled here.
  if (leases.isOverdue(claim.key)) {
    return { status: 'in-progress', retryAt: clock.now() + claim.lease };
  }
  // A custom store may throw synchronously.
  const reserving = (async () => replayStore.reserve(claim))();
  try {
    return await inTime(clock, RESERVING_TIME, () => reserving, noAnswer);
  } catch (error) {
    void releaseLate(reserving, replayStore);
    throw error;
  }
}

/** Frees an event that was reserved too late; otherwise its sender could not repeat it before the lease ends. */
async function releaseLate(
  reserving: Promise<ReplayVerdict>,
  store: ResolvedReceiver['replayStore'],
): Promise<void> {
  try {
    const verdict = await reserving;
    if (verdict.status === 'reserved') await store.release(verdict.reservation);
  } catch {
    // The lease ends.
  }
}

export function replayed(): WebhookReplayError {
  return new WebhookReplayError('replayed', 'the event was handled before');
}

/**
 * How far an event is when it is recorded: handled or queued before its answer, acknowledged before its record, or handled in a run
 * from the queue.
 */
export type EventStage = 'handled' | 'queued' | 'acknowledged' | 'run';

/** `open` until the work of {@link WebhookReception.handle} starts. */
type ReceptionState = 'open' | 'handling' | 'recording' | 'settled';

/**
 * A verified event that is being handled, and its reservation in the replay store.
 *
 * {@link handle} handles and settles it. A route without `@WebhookRoute()` has no handler to wait for: its guard calls one of
 * {@link complete}, {@link fail} and {@link abandon} instead.
 */
export class WebhookReception {
  state: ReceptionState;
  /** How far the event is now; only a warning names it. */
  stage: EventStage = 'handled';
  /** Whether the work of {@link handle} failed, as opposed to something before or after it. */
  workFailed = false;
  /** Whether the handler put the record into its own transaction; only the store knows how that ended. */
  committed = false;
  /** The error that `event.commit(tx)` threw because the lease had ended. */
  leaseLost: WebhookReplayError | undefined;
  lastRun: Promise<unknown> | undefined;

  /**
   * @param reservation - absent for a duplicate of an event that was handled before
   * @param body - removed when the event is settled
   */
  constructor(
    readonly event: WebhookEvent,
    private reservation: ReplayReservation | undefined,
    private readonly receiver: ResolvedReceiver,
    private readonly body: RequestBody,
    private readonly reporter: ReceiverReporter,
  ) {
    this.state = reservation === undefined ? 'settled' : 'open';
    if (reservation === undefined) {
      body.remove();
    } else {
      this.hold(reservation);
      internalsOf(event).reception = this;
    }
  }

  /** The key that all copies of the event share. */
  get identity(): string {
    return this.reservation!.claim.key;
  }

  /** Whether the event was handled before, so that it is only acknowledged. */
  get duplicate(): boolean {
    return this.reservation === undefined;
  }

  /** Resolves when {@link handle} has ended, or at once if it never started. */
  async idle(): Promise<void> {
    await this.lastRun?.catch(() => undefined);
  }

  /**
   * Handles the event and settles it: it is recorded if the work succeeds, and freed for another attempt if the work fails, the
   * lease is lost in `event.commit(tx)` or the store does not record it.
   *
   * @throws the error of the work; {@link WebhookReplayError} `lease_lost` of `event.commit(tx)`, also if the work ignored it: it
   *   may have rolled back, and no one repeats an acknowledged event; {@link WebhookStoreError} `store_unavailable` if the event cannot be recorded
   */
  handle<T>(work: () => T | Promise<T>): Promise<T> {
    const operation = internalsOf(this.event).receiving;
    const settle = (): Promise<T> => this.handleAndSettle(work);
    this.state = 'handling';
    const settled = operation === undefined ? settle() : operation.run(settle);
    this.lastRun = settled;
    return settled;
  }

  /**
   * Reserves an event whose work failed again, so that the work can be repeated for the same request.
   *
   * @returns `false` if it cannot be repeated: the work did not fail, another request has the event, the store is unavailable, or the
   *   body was in a file, which was removed
   */
  async reopen(): Promise<boolean> {
    if (this.state !== 'settled' || !this.workFailed || this.leaseLost !== undefined) return false;
    if (isReadOnDemand(this.event)) return false;
    try {
      const verdict = await reserveInTime(this.reservation!.claim, this.receiver);
      if (verdict.status !== 'reserved') return false;
      this.hold(verdict.reservation);
      this.workFailed = false;
      this.state = 'open';
      return true;
    } catch {
      return false;
    }
  }

  private async handleAndSettle<T>(work: () => T | Promise<T>): Promise<T> {
    let value: T;
    try {
      value = await work();
      if (this.leaseLost !== undefined) throw this.leaseLost;
    } catch (error) {
      this.workFailed = true;
      await this.fail();
      throw this.leaseLost ?? error;
    }
    await this.complete();
    return value;
  }

  /**
   * Records the event as handled, unless the handler did so itself. An event that cannot be recorded is freed.
   *
   * @throws {@link WebhookStoreError} `store_unavailable` if the event cannot be recorded
   */
  async complete(): Promise<void> {
    this.body.remove();
    if (!this.isUnrecorded) return;
    this.state = 'recording';
    if (this.committed) return this.recordAgain();
    try {
      if (!(await this.record())) this.reporter.takenOver(this.event);
      this.end();
    } catch (error) {
      this.reporter.unrecorded(this.event, this.stage);
      await this.release();
      throw error;
    }
  }

  /**
   * Frees the event, so that it can be sent again.
   *
   * This also applies after the handler put the record into its own transaction: the store frees what was rolled back, and keeps
   * what was committed.
   */
  async fail(): Promise<void> {
    if (this.isUnrecorded) await this.release();
  }

  /** Leaves the event to its lease, when it is unknown whether its handler is still running. */
  abandon(): void {
    this.end();
  }

  /**
   * Records the event in the handler's own transaction.
   *
   * @throws {@link WebhookReplayError} `lease_lost`, `unsupported_option`
   */
  async commitIn(tx: unknown): Promise<void> {
    const { replayStore, leases } = this.receiver;
    const reservation = this.reservation!;
    if (replayStore.commitWith === undefined) {
      throw new WebhookReplayError(
        'unsupported_option',
        "the receiver's replay store cannot join a transaction: set replay.store to a PostgresReplayStore on the database of the transaction",
      );
    }
    if (!this.isUnrecorded) throw leaseLostError();
    let recorded: boolean;
    try {
      this.committed = true;
      // The lease is still extended: the answer may take longer than the lease lasts.
      recorded = await replayStore.commitWith(tx, reservation);
    } catch (error) {
      this.committed = false;
      throw error;
    }
    // The entry is locked until the transaction ends, and an extension would wait for that.
    leases.drop(reservation);
    if (recorded) return;
    this.committed = false;
    this.leaseLost = leaseLostError();
    throw this.leaseLost;
  }

  /**
   * Records the event; a failing store is tried again for {@link RECORDING_TIME} while the lease is extended.
   *
   * @returns `false` if another process took the event over while it was being handled
   */
  private async record(): Promise<boolean> {
    const { clock, replayStore } = this.receiver;
    const deadline = clock.now() + RECORDING_TIME;
    const ask = <T>(call: () => Promise<T>): Promise<T> =>
      inTime(clock, deadline - clock.now(), call, noAnswer);
    /** Whether the answer to a commit was lost, so that a record may be our own. */
    let isUnknown = false;
    const commit = async (): Promise<boolean> => {
      try {
        return await ask(() => replayStore.commit(this.reservation!));
      } catch (error) {
        isUnknown = true;
        throw error;
      }
    };
    for (let pause = SHORTEST_PAUSE; ; pause = Math.min(2 * pause, LONGEST_PAUSE)) {
      try {
        if (await commit()) return true;
        // An outage longer than the lease has ended it: unless another process took the event since, it is reserved again.
        const verdict = await ask(() => replayStore.reserve(this.reservation!.claim));
        if (verdict.status !== 'reserved') return isUnknown && verdict.status === 'done';
        this.hold(verdict.reservation);
        return await commit();
      } catch (cause) {
        if (clock.now() + pause > deadline) {
          throw new WebhookStoreError(
            'store_unavailable',
            'the replay store did not record the event',
            { cause },
          );
        }
        await new Promise<void>((resolve) => void clock.wakeAt(clock.now() + pause, resolve));
      }
    }
  }

  /**
   * Records an event that the handler has recorded in its own transaction: a rolled back savepoint takes the record back, although the
   * transaction is committed. What the transaction has recorded stays so, also if the store fails now.
   */
  private async recordAgain(): Promise<void> {
    const { clock, replayStore } = this.receiver;
    const commit = (): Promise<boolean> => replayStore.commit(this.reservation!);
    await inTime(clock, RELEASING_TIME, commit, noAnswer).catch(() => {});
    this.end();
  }

  /** Frees the event. If the store fails or does not answer, the end of the lease does. */
  private async release(): Promise<void> {
    const { clock, replayStore } = this.receiver;
    this.end();
    try {
      const release = (): Promise<boolean> => replayStore.release(this.reservation!);
      // What was committed stays recorded; what was rolled back is free now.
      if (await inTime(clock, RELEASING_TIME, release, noAnswer)) this.committed = false;
    } catch {
      // Whether a transaction was committed stays unknown.
    }
  }

  /** Takes a reservation in place of the one before, and extends its lease. */
  private hold(reservation: ReplayReservation): void {
    const { leases } = this.receiver;
    if (this.reservation !== undefined) leases.drop(this.reservation);
    this.reservation = reservation;
    leases.hold(reservation);
  }

  private end(): void {
    this.body.remove();
    this.state = 'settled';
    if (this.reservation !== undefined) this.receiver.leases.drop(this.reservation);
  }

  private get isUnrecorded(): boolean {
    return this.state === 'open' || this.state === 'handling';
  }
}

function noAnswer(): Error {
  return new Error('the replay store did not answer');
}

function leaseLostError(): WebhookReplayError {
  return new WebhookReplayError(
    'lease_lost',
    'this handler no longer holds the lease of the event, or the event is recorded already: roll back; the sender repeats the event',
  );
}
