import assert from 'node:assert/strict';
import type { WebhookClock } from '../clock/webhook-clock.js';
import type {
  DeliveryAttempt,
  DeliveryLimits,
  DeliveryRecord,
  OutgoingDelivery,
  ReceivedDelivery,
  WebhookDelivery,
  DeliveryOutcome,
  DeliveryRun,
  DeliveryStatus,
} from '../queue/webhook-delivery.js';
import type {
  DeliveryFilter,
  ListedDelivery,
  EnqueuedDelivery,
  WebhookQueue,
} from '../queue/webhook-queue.js';

/** Milliseconds between two checks of a condition. */
export const STEP = 10;
/** Checks of a condition before a case fails: half a minute of a busy machine. */
const PATIENCE = 3_000;
/** Milliseconds between two checks if a lease may have to expire first. */
export const LONG_STEP = 1_000;
/** Milliseconds that the clock of a server may be ahead. */
export const AHEAD = 1_000;
/** Milliseconds: a delivery that is due so much later is not attempted during its case. */
export const HOUR = 3_600_000;
/** Milliseconds for which queues keep payloads that drop them. */
export const PAYLOADS_KEPT = 60_000;

export const DELIVERED = { type: 'delivered' } as const;

/** The outcome of a run after which the next attempt is due at this time. */
export function retry(at: number) {
  return { type: 'retry', at, reason: 'http_503' } as const;
}

/** Rules of the contract by their names. */
export type QueueRules = Readonly<Record<string, (bench: Bench) => Promise<void>>>;

/** The result of one run, or only its outcome: then an attempt is added unless it is `defer`. */
type ScriptedRun = (DeliveryOutcome & Omit<DeliveryRun, 'outcome' | 'attempt'>) | DeliveryRun;

type Script = (delivery: WebhookDelivery, attempt: number) => ScriptedRun | Promise<ScriptedRun>;

/** A queue whose handler follows a script and records its calls. */
export class Bench {
  readonly runs: { readonly id: string; readonly attempt: number }[] = [];
  /** When each of the runs started, in epoch milliseconds. */
  readonly startedAt: number[] = [];
  readonly received: WebhookDelivery[] = [];
  /** A minute before the case began, in epoch milliseconds: when its deliveries were created. */
  readonly createdAt: number;
  private stopped = false;

  constructor(
    readonly queue: WebhookQueue,
    private readonly clock: WebhookClock | undefined,
    readonly advance: (ms: number) => Promise<void>,
  ) {
    this.createdAt = this.now() - 60_000;
  }

  now(): number {
    return this.clock?.now() ?? Date.now();
  }

  async consume(script: Script = () => DELIVERED): Promise<void> {
    await this.queue.consume(async (delivery, attempt) => {
      this.runs.push({ id: delivery.id, attempt });
      this.startedAt.push(this.now());
      this.received.push(delivery);
      const run = await script(delivery, attempt);
      if ('outcome' in run) return run;
      const { overloadedUntil, limits, ...outcome } = run;
      if (outcome.type === 'defer') return { outcome };
      const reason = outcome.type === 'delivered' ? undefined : outcome.reason;
      const made = this.attempt(attempt, { reason });
      return { outcome, attempt: made, overloadedUntil, limits };
    });
  }

  /**
   * Delivers, but nothing that is held until the returned function is called.
   *
   * @param isHeld - default: everything is
   */
  async consumeGated(isHeld: (id: string) => boolean = () => true): Promise<() => void> {
    const { opened, open } = gate();
    await this.consume(async ({ id }) => {
      if (isHeld(id)) await opened;
      return DELIVERED;
    });
    return open;
  }

  /** Ids of the deliveries that ran, in order. */
  ran(): string[] {
    return this.runs.map(({ id }) => id);
  }

  /** An attempt that started now. */
  attempt(attempt: number, change: Partial<DeliveryAttempt> = {}): DeliveryAttempt {
    return { attempt, at: this.now(), durationMs: 12, method: 'POST', ...change };
  }

  delivery(id: string, change: Partial<OutgoingDelivery> = {}): OutgoingDelivery {
    return {
      id,
      eventId: `event-${id}`,
      event: 'contract.checked',
      endpointId: 'receiver',
      payload: jsonPayload('{"é":"\\u0000 "}'),
      createdAt: this.createdAt,
      ...change,
    };
  }

  receivedDelivery(id: string, receiver: string): ReceivedDelivery {
    const claims = {
      iss: 'https://shop.example',
      jti: id,
      iat: 1,
      exp: 2,
      webhook: { event: 'a' },
    };
    return {
      id,
      eventId: `event-${id}`,
      event: 'contract.received',
      payload: jsonPayload('{}'),
      createdAt: this.createdAt,
      received: {
        receiver,
        claims,
        method: 'POST',
        profile: 'webhook-token',
        contentType: 'application/json',
        bodyVerified: true,
      },
    };
  }

  due(
    id: string,
    change: Partial<OutgoingDelivery> = {},
    limits?: DeliveryLimits,
  ): EnqueuedDelivery {
    return { delivery: this.delivery(id, change), notBefore: this.now(), limits };
  }

  /** Records deliveries that are due now. */
  enqueue(...ids: string[]): ReturnType<WebhookQueue['enqueue']> {
    return this.queue.enqueue(ids.map((id) => this.due(id)));
  }

  /** Records deliveries that stay pending, because they are due in an hour. */
  enqueueLater(...deliveries: WebhookDelivery[]): ReturnType<WebhookQueue['enqueue']> {
    const notBefore = this.now() + HOUR;
    return this.queue.enqueue(deliveries.map((delivery) => ({ delivery, notBefore })));
  }

  /** Runs each of these deliveries once, and resolves when its outcome is recorded. */
  async run(
    ...runs: readonly { readonly delivery: WebhookDelivery; readonly run: ScriptedRun }[]
  ): Promise<void> {
    const scripts = new Map(runs.map(({ delivery, run }) => [delivery.id, run]));
    await this.consume(({ id }) => scripts.get(id)!);
    const notBefore = this.now();
    const items: EnqueuedDelivery[] = runs.map(({ delivery }) => ({ delivery, notBefore }));
    await this.queue.enqueue(items);
    await this.until(async () => {
      const records = await this.queue.find([...scripts.keys()]);
      return records.every((record) => {
        const run = scripts.get(record!.delivery.id)!;
        const { type } = 'outcome' in run ? run.outcome : run;
        // A queue may show the outcome of a dead delivery a moment before its status.
        const isSettled = type !== 'dead' || record!.status === 'dead';
        return isSettled && record!.updatedAt !== record!.delivery.createdAt;
      });
    });
  }

  /** The record of a delivery, in a comparable form. */
  async find(id: string): Promise<DeliveryRecord | undefined> {
    const [record] = await this.queue.find([id]);
    return record && { ...record, delivery: comparableDelivery(record.delivery) };
  }

  /** Status and attempts of a delivery. */
  async stateOf(id: string): Promise<string> {
    const record = await this.find(id);
    return `${record?.status} ${record?.attempts}`;
  }

  async list(filter: DeliveryFilter = {}): Promise<readonly ListedDelivery[]> {
    return this.queue.list(filter, { limit: 1_000 });
  }

  async ids(filter: DeliveryFilter = {}): Promise<string[]> {
    return (await this.list(filter)).map(({ delivery }) => delivery.id);
  }

  async until(condition: () => boolean | Promise<boolean>, step = STEP): Promise<void> {
    for (let round = 0; round < PATIENCE; round++) {
      if (await condition()) return;
      await this.advance(step);
    }
    assert.fail('the expected state was not reached in time');
  }

  /** Waits until so many deliveries have a status. */
  async untilCount(count: number, status: DeliveryStatus): Promise<void> {
    await this.until(async () => (await this.ids({ status })).length === count);
  }

  async untilState(id: string, state: string): Promise<void> {
    await this.until(async () => (await this.stateOf(id)) === state);
  }

  async untilRuns(count: number, step = STEP): Promise<void> {
    await this.until(() => this.runs.length >= count, step);
  }

  async stop(grace: number): Promise<number> {
    this.stopped = true;
    return this.queue.stop(this.now() + grace);
  }

  async close(): Promise<void> {
    if (!this.stopped) await this.stop(0).catch(() => {});
  }
}

/** A promise that the case resolves. */
export function gate(): { readonly opened: Promise<void>; readonly open: () => void } {
  let open!: () => void;
  const opened = new Promise<void>((resolve) => (open = resolve));
  return { opened, open };
}

function jsonPayload(text: string): OutgoingDelivery['payload'] {
  return { kind: 'json', bytes: new TextEncoder().encode(text), contentType: 'application/json' };
}

/** A queue may return any kind of Uint8Array. */
export function comparableDelivery<Delivery extends WebhookDelivery>(delivery: Delivery): Delivery {
  const { bytes } = delivery.payload;
  if (bytes === undefined) return delivery;
  return { ...delivery, payload: { ...delivery.payload, bytes: Uint8Array.from(bytes) } };
}
