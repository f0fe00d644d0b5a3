import {
  Inject,
  Injectable,
  Logger,
  type OnModuleDestroy,
  type OnApplicationBootstrap,
} from '@nestjs/common';
import type {
  DeliveryAttempt,
  DeliveryOutcome,
  FailureReason,
  ReceivedDelivery,
  WebhookDelivery,
} from '../../queue/webhook-delivery.js';
import { runObservers, stopQueue } from '../../queue/webhook-queue.js';
import { spreadWait } from '../../queue/retry-schedule.js';
import { errorName, quietly } from '../../errors/webhook.error.js';
import { InboxRecorder } from '../inbox/inbox.recorder.js';
import type { ReplayReservation } from '../../replay/replay-store.js';
import { NO_BODY } from '../../request/body.js';
import { withoutTokens } from '../../token/decoding.js';
import { EventInternals, type WebhookEvent } from '../webhook-event.js';
import { errorsOfHandlers, isGuardRefusal } from '../error-answers.js';
import { WebhookDispatcher } from '../handlers/webhook.dispatcher.js';
import type {
  QueuedEvents,
  ResolvedReceiver,
  ResolvedReceivers,
} from '../receiver-options.resolver.js';
import { RECEIVER_SHUTDOWN, WEBHOOK_RECEIVERS } from '../receiver.constants.js';
import type { ReceiverShutdown } from '../receiver.lifecycle.js';
import { ReceiverReporter, stackOf, withGathered } from '../receiver.reporter.js';
import { handledClaim, reserveInTime, WebhookReception } from '../reception.js';
import { eventOfDelivery } from './received-delivery.js';

type QueuedReceiver = ResolvedReceiver & { readonly queued: QueuedEvents };

type RunningEvent = Pick<WebhookEvent, 'event' | 'id' | 'run'>;

class Unhandled extends Error {}

/** The inbox's names for outcomes. */
const SETTLED = { delivered: 'handled', retry: 'queued', dead: 'dead' } as const;

const HOW_TO_RETRY = 'list and retry it with WebhookInbox';

/** Milliseconds until a run is tried again, if the replay store is unavailable or another process holds the event. */
const SOON = 5_000;
/** Characters of an error that are stored with its run, as of the answers of endpoints. */
const MAX_DESCRIBED = 1_024;
/** Milliseconds until an event of an unknown receiver is looked at again. */
const MUCH_LATER = 60_000;

/**
 * Runs the handlers of queued events, until a run succeeds or the retry schedule ends.
 *
 * Each run reserves its event in the replay store under a separate key: a queue may deliver an event twice, after a crash or a lost
 * lease, and it is still handled once.
 */
@Injectable()
export class ReceivedEventWorker implements OnApplicationBootstrap, OnModuleDestroy {
  private readonly logger = new Logger('WebhookReceiver');
  private readonly abort = new AbortController();
  private readonly receivers: readonly QueuedReceiver[];
  /** The receivers whose replay store is unavailable. */
  private readonly outages = new Set<QueuedReceiver>();

  constructor(
    @Inject(WEBHOOK_RECEIVERS) receivers: ResolvedReceivers,
    @Inject(RECEIVER_SHUTDOWN) private readonly shutdown: ReceiverShutdown,
    private readonly dispatcher: WebhookDispatcher,
    private readonly inbox: InboxRecorder,
    private readonly reporter: ReceiverReporter,
  ) {
    this.receivers = [...receivers.values()].filter(isQueued);
  }

  async onApplicationBootstrap(): Promise<void> {
    for (const receiver of this.receivers) {
      await receiver.queued.queue.consume(async (delivery, run) => {
        const at = receiver.clock.now();
        const { outcome, error } = await this.run(receiver, delivery, run);
        const runs = outcome.type === 'dead' ? outcome.attempts : run;
        const attempt = attemptOf(outcome, error, { run: runs, at, now: receiver.clock.now() });
        if (outcome.type !== 'defer') this.inbox.settled(delivery.id, SETTLED[outcome.type], runs);
        for (const observe of runObservers) observe({ consumer: this, delivery, outcome, attempt });
        return { outcome, attempt };
      });
    }
  }

  /** Lets running handlers end and starts no more, in parallel with the drain of requests. */
  async onModuleDestroy(): Promise<void> {
    await Promise.all(this.receivers.map(async (receiver) => this.stop(receiver)));
  }

  private async stop({ name, queued }: QueuedReceiver): Promise<void> {
    const { clock, timeout } = this.shutdown;
    const abort = (): void => this.abort.abort();
    const left = await stopQueue(queued.queue, clock, timeout, abort);
    if (left === 0) return;
    abort();
    const fate = queued.queue.durable ? 'they run again after the restart' : 'they are lost';
    quietly(() =>
      this.logger.warn(
        `${left} event(s) of receiver "${name}" were unfinished at shutdown; ${fate}`,
      ),
    );
  }

  private async run(
    receiver: QueuedReceiver,
    delivery: WebhookDelivery,
    run: number,
  ): Promise<{ readonly outcome: DeliveryOutcome; readonly error?: unknown }> {
    if (delivery.received === undefined || delivery.received.receiver !== receiver.name) {
      return { outcome: this.deferForeign(receiver, delivery) };
    }
    let event: WebhookEvent;
    try {
      event = eventOfDelivery(delivery, {
        run,
        signal: this.abort.signal,
        internals: internalsFor(delivery, receiver),
      });
    } catch (error) {
      const stored = { id: delivery.eventId, event: delivery.event, run };
      this.log('error', stored, `cannot be restored from its queue: ${errorName(error)}`);
      return { outcome: this.retryOrDie(receiver, stored, 'handler_failed'), error };
    }
    const hasDied = await this.diedInLastRun(receiver, delivery, run);
    const reservation = await this.reserve(receiver, delivery, event);
    if ('type' in reservation) return { outcome: reservation };
    const reception = new WebhookReception(event, reservation, receiver, NO_BODY, this.reporter);
    if (hasDied) {
      await reception.fail();
      return { outcome: this.dieAfter(receiver, event, run - 1) };
    }
    reception.stage = 'run';
    try {
      await reception.handle(async () => {
        const handlers = this.dispatcher.handlersOf(event);
        if (handlers.length === 0) throw new Unhandled();
        await this.dispatcher.call(handlers, event);
      });
    } catch (thrown) {
      const error = readable(thrown);
      // If only the record failed, the event is done: it runs again only if the queue crashes before it has dropped it.
      if (reception.workFailed) {
        return { outcome: this.failed(receiver, reception, error), error };
      }
    }
    return { outcome: { type: 'delivered' } };
  }

  /**
   * Whether the process died in the last run of an event: its queue counted the run, and has no record of it. With a record, the event
   * had more runs before the option `attempts` was lowered.
   */
  private async diedInLastRun(
    { queued }: QueuedReceiver,
    { id }: WebhookDelivery,
    run: number,
  ): Promise<boolean> {
    if (run <= queued.retry.attempts) return false;
    const attempts = await queued.queue.attempts(id);
    return attempts.at(-1)?.attempt !== run - 1;
  }

  private dieAfter(
    { queued }: QueuedReceiver,
    event: RunningEvent,
    attempts: number,
  ): DeliveryOutcome {
    const run = `in run ${attempts} of ${queued.retry.attempts}`;
    this.log('warn', event, `is a dead letter now: the process died ${run}; ${HOW_TO_RETRY}`);
    return { type: 'dead', reason: 'process_died', attempts };
  }

  /** @returns the reservation, or the outcome of a delivery that must not run now */
  private async reserve(
    receiver: QueuedReceiver,
    { id }: WebhookDelivery,
    event: WebhookEvent,
  ): Promise<ReplayReservation | DeliveryOutcome> {
    const { clock } = receiver;
    try {
      const verdict = await reserveInTime(handledClaim(id, event, receiver), receiver);
      this.outages.delete(receiver);
      if (verdict.status === 'reserved') return verdict.reservation;
      // Its last run was recorded, and the process crashed before the queue learned of it.
      if (verdict.status === 'done') return { type: 'delivered' };
      const at = verdict.status === 'in-progress' ? verdict.retryAt : clock.now() + SOON;
      return { type: 'defer', at };
    } catch (error) {
      if (!this.outages.has(receiver)) {
        const why = error instanceof Error ? error.message : 'the replay store failed';
        quietly(() =>
          this.logger.error(`Queued events of receiver "${receiver.name}" are deferred: ${why}`),
        );
      }
      this.outages.add(receiver);
      return { type: 'defer', at: clock.now() + SOON };
    }
  }

  private failed(
    receiver: QueuedReceiver,
    reception: WebhookReception,
    error: unknown,
  ): DeliveryOutcome {
    const { clock, queued } = receiver;
    const { event, leaseLost } = reception;
    const reason = error instanceof Unhandled ? 'event_unhandled' : 'handler_failed';
    const now = clock.now();
    if (leaseLost !== undefined) {
      this.log('warn', event, 'could not be committed: its lease has ended, and it runs again');
      return { type: 'defer', at: now + SOON };
    }
    // The shutdown interrupted it, which is not a failure of the handler.
    if (this.abort.signal.aborted) return { type: 'defer', at: now };
    for (const one of errorsOfHandlers(error)) {
      const run = `in run ${event.run} of ${queued.retry.attempts}`;
      if (isGuardRefusal(one)) {
        this.log('warn', event, `was refused ${run} by the application: ${errorName(one)}`);
        continue;
      }
      const stack = one instanceof Unhandled ? undefined : stackOf(one);
      this.log('error', event, `failed ${run}: ${reason}`, stack);
    }
    // If its transaction was committed, the event is handled, whatever failed afterwards: the next run finds the record. As a failure
    // it could wait until the record has expired.
    if (reception.committed) return { type: 'defer', at: now + SOON };
    return this.retryOrDie(receiver, event, reason);
  }

  private retryOrDie(
    { clock, queued }: QueuedReceiver,
    event: RunningEvent,
    reason: FailureReason,
  ): DeliveryOutcome {
    const { run } = event;
    if (run >= queued.retry.attempts) {
      this.log(
        'warn',
        event,
        `failed in all ${run} run(s) and is a dead letter now: ${HOW_TO_RETRY}`,
      );
      return { type: 'dead', reason, attempts: run };
    }
    const wait = spreadWait(queued.retry, run + 1, Math.random());
    return { type: 'retry', at: Math.round(clock.now() + wait), reason };
  }

  /** Defers an event of another receiver, one that was renamed or shares the queue by mistake, so that its owner can run it. */
  private deferForeign(
    { name, clock }: QueuedReceiver,
    { id, received }: WebhookDelivery,
  ): DeliveryOutcome {
    const whose = received === undefined ? 'a publisher' : `receiver "${received.receiver}"`;
    quietly(() =>
      this.logger.error(
        `The queue of receiver "${name}" holds delivery ${id} of ${whose}; give each queue its own name, and do not rename a receiver while its queue holds events`,
      ),
    );
    return { type: 'defer', at: clock.now() + MUCH_LATER };
  }

  private log(
    level: 'error' | 'warn',
    { event, id }: RunningEvent,
    what: string,
    stack?: string,
  ): void {
    const line = `${event} (id ${id}) ${what}`;
    quietly(() =>
      stack === undefined ? this.logger[level](line) : this.logger[level](line, stack),
    );
  }
}

/** A thrown value that can be logged: one with getters or traps that throw is replaced. */
function readable(thrown: unknown): unknown {
  try {
    for (const one of errorsOfHandlers(thrown)) stackOf(one);
    describedError(thrown);
    return thrown;
  } catch {
    return new Error('A handler threw a value that cannot be read.');
  }
}

/** A run of the handlers as the queue records it; a deferred one does not count. */
function attemptOf(
  outcome: DeliveryOutcome,
  error: unknown,
  { run, at, now }: { readonly run: number; readonly at: number; readonly now: number },
): DeliveryAttempt | undefined {
  if (outcome.type === 'defer') return undefined;
  const reason = outcome.type === 'delivered' ? undefined : outcome.reason;
  const answer = reason === 'handler_failed' ? describedError(error) : undefined;
  return { attempt: run, at, durationMs: Math.max(0, now - at), reason, answer };
}

/** Name and message of what the handlers threw, without anything that looks like a token. */
function describedError(error: unknown): string {
  const lines = errorsOfHandlers(error)
    .flatMap(withGathered)
    .map((one) => (one instanceof Error ? `${errorName(one)}: ${one.message}` : errorName(one)));
  return withoutTokens(lines.join('\n')).slice(0, MAX_DESCRIBED);
}

function internalsFor(
  { trace, createdAt }: ReceivedDelivery,
  receiver: QueuedReceiver,
): EventInternals {
  const internals = new EventInternals(receiver.validator);
  internals.queued = trace && { trace, ageMs: receiver.clock.now() - createdAt };
  return internals;
}

function isQueued(receiver: ResolvedReceiver): receiver is QueuedReceiver {
  return receiver.queued !== undefined;
}
