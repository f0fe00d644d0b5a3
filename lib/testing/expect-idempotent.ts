import { randomUUID } from 'node:crypto';
import { isDeepStrictEqual, types } from 'node:util';
import type { INestApplication } from '@nestjs/common';
import { readOptions } from '../options/read-options.js';
import { func, object, optional, rule } from '../options/rules.js';
import type { ResolvedReceiver } from '../receiver/receiver-options.resolver.js';
import type { WebhookEventData, WebhookEventName } from '../token/webhook-event-map.js';
import {
  DELIVER_WEBHOOK,
  deliverWebhook,
  type DeliveredWebhook,
  type DeliverWebhookOptions,
  receiverOf,
} from './deliver-webhook.js';
import { FaultyReplayStore } from './faulty-replay.store.js';
import { initialise } from './in-memory-request.js';
import { changeOf, firstDifference } from './state-difference.js';

/** A way in which a sender, the network or a crash repeats or reorders events. */
type IdempotencyScenario =
  'repeated' | 'concurrent' | 'crash-before-record' | 'lease-expired' | 'reordered';

/** A scenario whose outcome differs from that of one clean delivery. */
interface IdempotencyFailure {
  readonly scenario: IdempotencyScenario;
  /** What happened, step by step. */
  readonly interleaving: readonly string[];
  /** The observed state after one clean delivery. */
  readonly expected: unknown;
  /** The observed state after the scenario. */
  readonly actual: unknown;
  /** The first difference between the two. */
  readonly difference: string;
}

/** A handler that is not idempotent. `failures` has every failing scenario, the other members describe the first one. */
export class IdempotencyError extends Error {
  override readonly name = 'IdempotencyError';
  readonly scenario: IdempotencyScenario;
  readonly interleaving: readonly string[];
  readonly expected: unknown;
  readonly actual: unknown;

  constructor(
    readonly failures: readonly [IdempotencyFailure, ...IdempotencyFailure[]],
    options?: ErrorOptions,
  ) {
    super(`Not idempotent ${failures.map(describe).join('\n')}`, options);
    const [{ scenario, interleaving, expected, actual }] = failures;
    this.scenario = scenario;
    this.interleaving = interleaving;
    this.expected = expected;
    this.actual = actual;
  }
}

function describe({ scenario, interleaving, difference }: IdempotencyFailure): string {
  const steps = interleaving.map((step, index) => `\n  ${index + 1}. ${step}`);
  return `(${scenario}): ${difference}${steps.join('')}`;
}

/** An event that the sender sends after the first one. */
export interface NeighbourEvent {
  readonly event: string;
  readonly data?: unknown;
}

/** The sender's key, and how the effects of handlers are observed. */
export interface ExpectIdempotentOptions extends Omit<
  DeliverWebhookOptions,
  'id' | 'jti' | 'tamper'
> {
  /**
   * Returns the state that handlers change, as JSON: rows, requests sent, balances. Leave out what differs from run to run, such
   * as times and generated ids.
   */
  readonly observe: () => unknown;
  /**
   * Restores the state from before the first event; called before each scenario. With it, every scenario is compared with one
   * clean delivery from the same state. Without it, state accumulates, and only its changes can be compared: a row that two
   * runs insert at once is then not found if its key comes from the data.
   */
  readonly reset?: (() => unknown) | undefined;
  /** Events that follow in the right order; they are then delivered in other orders too. Default: none. */
  readonly neighbours?: readonly NeighbourEvent[] | undefined;
}

const { id: _id, jti: _jti, tamper: _tamper, ...SENDING } = DELIVER_WEBHOOK;

const OPTIONS = object<ExpectIdempotentOptions>()({
  ...SENDING,
  observe: func<() => unknown>('async () => state'),
  reset: optional(func<() => unknown>('async () => {}')),
  neighbours: optional(rule<readonly NeighbourEvent[]>(Array.isArray, 'must be a list of events')),
});

/** Values that JSON loses or refuses, and the remedy. */
const UNOBSERVABLE: readonly (readonly [(value: unknown) => boolean, string, string])[] = [
  [types.isMap, 'a Map', 'convert it to [...map]'],
  [types.isSet, 'a Set', 'convert it to [...set]'],
  [types.isPromise, 'a Promise', 'await it'],
  [types.isNativeError, 'an Error', 'convert it with String(error)'],
  [(value) => typeof value === 'bigint', 'a BigInt', 'convert it with String(value)'],
  [
    (value) => typeof value === 'number' && !Number.isFinite(value),
    'NaN or an infinite number',
    'convert it with String(value)',
  ],
  [
    (value) => hasNoMembers(value) && Symbol.iterator in value,
    'an iterator',
    'convert it to a list, such as [...map.values()]',
  ],
  [hasNoMembers, 'an object without enumerable members', 'copy its data to a plain object'],
];

/** Whether JSON shows an object as `{}` that may hold something. */
function hasNoMembers(value: unknown): value is object {
  if (typeof value !== 'object' || value === null || Object.keys(value).length > 0) return false;
  if (Array.isArray(value) || types.isTypedArray(value) || types.isBoxedPrimitive(value))
    return false;
  if (Reflect.ownKeys(value).length > 0) return true;
  // A plain object may be from another realm, such as the one of Jest.
  const prototype: unknown = Object.getPrototypeOf(value);
  return prototype !== null && Object.getPrototypeOf(prototype) !== null;
}

/** The last check of each receiver; a check changes its replay store. */
const checks = new WeakMap<ResolvedReceiver, Promise<void>>();

/** How often the sender repeats an event that is refused. */
const MAX_ATTEMPTS = 4;

/**
 * Checks that an event has its effect once, however it is delivered: repeated, twice at once, again after a crash between the
 * handler's effect and the record of it, again after its lease ran out while its handler was still running, and in another order
 * than its neighbours.
 *
 * The application's own handlers, stores and database run; only the record in the replay store is disturbed. Each scenario has an
 * event id of its own. A receiver with `acknowledge: 'queued'` handles at once for the time of the check.
 *
 * Every scenario runs, also after one has failed. Checks of one receiver run one after the other.
 *
 * @throws {@link IdempotencyError} with each scenario whose outcome differs from that of one clean delivery
 * @throws Error if a clean delivery is refused, no handler takes the event, or `observe` returns nothing that can be compared
 */
export async function expectIdempotent<Event extends WebhookEventName>(
  app: INestApplication,
  event: Event,
  data: WebhookEventData<Event>,
  options: ExpectIdempotentOptions,
): Promise<void> {
  readOptions(OPTIONS, options, 'expectIdempotent');
  await initialise(app);
  const receiver = receiverOf(app, options.receiver);
  const check = new IdempotencyCheck(app, { event, data }, options);
  const run = (): Promise<void> => check.runOn(receiver);
  const running = (checks.get(receiver) ?? Promise.resolve()).then(run, run);
  checks.set(receiver, running);
  await running;
}

/** A sent event; its id stays the same when it is repeated. */
interface SentEvent extends NeighbourEvent {
  readonly id: string;
}

class IdempotencyCheck {
  private store!: FaultyReplayStore;
  private scenario: IdempotencyScenario = 'repeated';
  private steps: string[] = [];

  constructor(
    private readonly app: INestApplication,
    private readonly first: NeighbourEvent,
    private readonly options: ExpectIdempotentOptions,
  ) {}

  async runOn(receiver: ResolvedReceiver): Promise<void> {
    const { replayStore, queued } = receiver;
    // The verifier reads both for every request.
    const disturbed = receiver as {
      -readonly [Key in keyof ResolvedReceiver]: ResolvedReceiver[Key];
    };
    const scenarios: readonly (readonly [IdempotencyScenario, () => Promise<void>])[] = [
      ['repeated', () => this.repeated()],
      ['concurrent', () => this.concurrent()],
      ['crash-before-record', () => this.crashBeforeRecord()],
      ['lease-expired', () => this.leaseExpiredBeforeHandler()],
      ['lease-expired', () => this.leaseExpiredDuringHandler()],
      ['reordered', () => this.reordered()],
    ];
    const failures: IdempotencyFailure[] = [];
    let cause: unknown;
    try {
      for (const [scenario, run] of scenarios) {
        this.scenario = scenario;
        this.store = new FaultyReplayStore(replayStore);
        Object.assign(disturbed, { replayStore: this.store, queued: undefined });
        await run().catch((error: unknown) => {
          if (!(error instanceof IdempotencyError)) throw error;
          failures.push(...error.failures);
        });
      }
    } catch (error) {
      // After a failed scenario, what it left behind may be why a clean delivery is refused.
      if (failures.length === 0) throw error;
      cause = error;
    } finally {
      Object.assign(disturbed, { replayStore, queued });
    }
    const [first, ...others] = failures;
    if (first === undefined) return;
    throw new IdempotencyError([first, ...others], cause === undefined ? undefined : { cause });
  }

  private async repeated(): Promise<void> {
    const sent = await this.begin();
    await this.deliverCleanly(sent);
    const expected = await this.observe();
    this.steps.push('the same event is delivered again');
    await this.deliver(sent);
    this.compare(expected, await this.observe());
  }

  private async concurrent(): Promise<void> {
    await this.compareWithClean([this.first], async () => {
      const sent = newEvent(this.first);
      this.steps = [`${this.first.event} is delivered twice at the same time`];
      await Promise.all([this.send(sent), this.send(sent)]);
      await this.deliver(sent);
    });
  }

  private async crashBeforeRecord(): Promise<void> {
    const sent = await this.begin();
    this.store.loseNextRecord();
    await this.deliverCleanly(sent);
    const expected = await this.observe();
    this.steps.push(
      'the process crashes after the effect, before the event is recorded as handled',
      'the sender repeats the event',
    );
    await this.deliver(sent);
    this.compare(expected, await this.observe());
  }

  /** The first process stalls before its handler starts, and ends after the second one has recorded the event. */
  private async leaseExpiredBeforeHandler(): Promise<void> {
    const sent = await this.begin();
    this.steps = [
      `process A reserves ${sent.event}, stalls, and loses its lease`,
      'process B handles the event and records it',
      'process A continues: its handler runs',
    ];
    const stalled = this.store.stallNextReservation();
    const late = this.send(sent);
    await Promise.race([stalled.reached, late]);
    try {
      await this.deliverCleanly(sent);
    } finally {
      stalled.resume();
    }
    const expected = await this.observe();
    await late;
    this.compare(expected, await this.observe());
  }

  /** Both handlers start at the same time, and take turns whenever they wait. */
  private async leaseExpiredDuringHandler(): Promise<void> {
    await this.compareWithClean([this.first], async () => {
      const sent = newEvent(this.first);
      this.steps = [
        `process A reserves ${sent.event}, and loses its lease while its handler runs`,
        'process B reserves it too: both handlers run at the same time',
      ];
      const both = this.store.grantNextReservationTwice();
      const first = this.send(sent);
      await Promise.race([both.reached, first]);
      // If the second one is refused before it reserves, the first one must not wait for it.
      const second = this.send(sent).finally(() => both.resume());
      await Promise.all([first, second]);
      await this.deliver(sent);
    });
  }

  private async reordered(): Promise<void> {
    const events = [this.first, ...(this.options.neighbours ?? [])];
    for (const order of otherOrders(events.length)) {
      await this.compareWithClean(events, async () => {
        const reordered = order.map((index) => events[index]!);
        this.steps = reordered.map(
          ({ event }, index) => `event ${order[index]! + 1} of ${events.length}, ${event}, arrives`,
        );
        await this.deliver(...reordered.map(newEvent));
      });
    }
  }

  /**
   * Compares the outcome of a disturbed delivery with that of a clean one. Without `reset`, a clean delivery may already have
   * changed the state, so a second one shows what the next one should change.
   */
  private async compareWithClean(
    events: readonly NeighbourEvent[],
    disturbed: () => Promise<void>,
  ): Promise<void> {
    const cleanly = async (): Promise<unknown> => {
      await this.options.reset?.();
      this.steps = events.map(({ event }) => `${event} is delivered`);
      for (const event of events.map(newEvent)) await this.deliverCleanly(event);
      return this.observe();
    };
    const before = await cleanly();
    if (this.options.reset !== undefined) {
      await this.options.reset();
      await disturbed();
      return this.compare(before, await this.observe());
    }
    const expected = await cleanly();
    await disturbed();
    const actual = await this.observe();
    const isSettled = isDeepStrictEqual(before, expected);
    if (isSettled) return this.compare(expected, actual);
    if (isDeepStrictEqual(changeOf(before, expected), changeOf(expected, actual))) return;
    const difference = `it changes the state differently from one clean delivery: ${firstDifference(expected, actual)}`;
    throw this.failed(expected, actual, difference);
  }

  private async begin(): Promise<SentEvent> {
    await this.options.reset?.();
    this.steps = [`${this.first.event} is delivered`];
    return newEvent(this.first);
  }

  private async observe(): Promise<unknown> {
    return copyOf(await this.options.observe());
  }

  private compare(expected: unknown, actual: unknown): void {
    const difference = firstDifference(expected, actual);
    if (difference === undefined) return;
    throw this.failed(expected, actual, difference);
  }

  private async deliverCleanly(sent: SentEvent): Promise<void> {
    const { status, code, error, outcome } = await this.send(sent);
    if (outcome === 'unhandled') {
      throw new Error(
        `expectIdempotent: no handler takes "${sent.event}", so nothing is tested; correct its name, or add a handler`,
      );
    }
    if (isSuccess(status)) return;
    throw new Error(
      `expectIdempotent: ${sent.event} was refused with ${status}${code === undefined ? '' : ` (${code})`}; deliver it with deliverWebhook() to see why`,
      { cause: error },
    );
  }

  /**
   * Delivers events as a sender does that repeats each until it is acknowledged: it goes on with the next event, and repeats those
   * that were refused later.
   */
  private async deliver(...events: readonly SentEvent[]): Promise<void> {
    let open = events;
    let last: DeliveredWebhook | undefined;
    for (let attempt = 1; attempt <= MAX_ATTEMPTS && open.length > 0; attempt++) {
      const refused: SentEvent[] = [];
      for (const sent of open) {
        const answer = await this.send(sent);
        if (isSuccess(answer.status)) continue;
        refused.push(sent);
        last = answer;
      }
      open = refused;
    }
    if (open.length === 0) return;
    const { status, code } = last!;
    const answer = `${status}${code === undefined ? '' : ` ${code}`}`;
    const difference = `${open[0]!.event} is rejected with ${answer} each time, so its sender repeats it until it gives up`;
    throw this.failed('acknowledged', answer, difference);
  }

  private failed(expected: unknown, actual: unknown, difference: string): IdempotencyError {
    const { scenario, steps: interleaving } = this;
    return new IdempotencyError([{ scenario, interleaving, expected, actual, difference }]);
  }

  private async send({ event, data, id }: SentEvent): Promise<DeliveredWebhook> {
    const { observe: _observe, reset: _reset, neighbours: _neighbours, ...sending } = this.options;
    return deliverWebhook(this.app, event as never, data as never, { ...sending, id });
  }
}

function newEvent({ event, data }: NeighbourEvent): SentEvent {
  return { event, data, id: randomUUID() };
}

/**
 * A copy of the state by JSON, so that a later change of an object that is still in use does not change the observation.
 *
 * @throws Error if JSON would lose the state, so that every state would be equal
 */
function copyOf(state: unknown): unknown {
  const json = JSON.stringify(state, (name, value: unknown) => {
    const found = UNOBSERVABLE.find(([isOfType]) => isOfType(value));
    if (found === undefined) return value;
    const [, type, remedy] = found;
    const place = name === '' ? '' : ` (${name})`;
    throw new Error(
      `expectIdempotent: observe returned ${type}${place}, which JSON cannot hold; ${remedy}`,
    );
  }) as string | undefined;
  if (json !== undefined) return JSON.parse(json);
  const what = state === undefined ? 'undefined' : `a ${typeof state}`;
  throw new Error(
    `expectIdempotent: observe returned ${what}; return the state that handlers change, such as the rows of a table`,
  );
}

function isSuccess(status: number): boolean {
  return status >= 200 && status < 300;
}

/** The reverse order, and every order in which two adjacent events change places. */
function otherOrders(length: number): number[][] {
  const inOrder = Array.from({ length }, (_, index) => index);
  const swaps = inOrder.slice(1).map((index) => {
    const order = [...inOrder];
    [order[index - 1], order[index]] = [index, index - 1];
    return order;
  });
  return length > 2 ? [...swaps, inOrder.toReversed()] : swaps;
}
