import {
  Inject,
  Injectable,
  Logger,
  type BeforeApplicationShutdown,
  type OnApplicationBootstrap,
} from '@nestjs/common';
import type { DeliveryOutcome } from '../../queue/webhook-queue.js';
import type { FailureReason } from '../../queue/failure-reason.js';
import { spreadWait } from '../../queue/retry-schedule.js';
import type { WebhookDelivery } from '../../queue/webhook-delivery.interface.js';
import { errorName } from '../../errors/webhook.error.js';
import type { ReplayReservation } from '../../replay/replay-store.js';
import { NO_BODY } from '../../request/request-body.js';
import { EventKeeping, type WebhookEvent } from '../webhook-event.js';
import { isGuardRefusal } from '../answers/webhook-answer.js';
import { WebhookDispatcher } from '../handlers/webhook.dispatcher.js';
import type { ResolvedReceiver, ResolvedReceivers } from '../receiver-options.interface.js';
import { RECEIVER_SHUTDOWN, WEBHOOK_RECEIVERS } from '../receiver.constants.js';
import type { ReceiverShutdown } from '../receiver.lifecycle.js';
import { handledClaim } from '../replay/replay-identity.js';
import { WebhookReception } from '../replay/webhook-reception.js';
import type { QueuedEvents } from './queued-events.resolver.js';
import { eventOfDelivery } from './received-delivery.js';

/** A receiver that acknowledges before it handles. */
type QueuedReceiver = ResolvedReceiver & { readonly queued: QueuedEvents };

/** Milliseconds until an event is looked at again whose record cannot be read, or which another holds. */
const SOON = 5_000;
/** Until one is that belongs to a receiver this process does not have. */
const MUCH_LATER = 60_000;

/**
 * Gives the events that were acknowledged to their handlers, until these have handled them or the schedule ends.
 *
 * A run holds its event in the replay store, under a key of its own: a queue may hand out an event twice, after a crash or a
 * lost lease, and it is still handled once.
 */
@Injectable()
export class ReceivedEventWorker implements OnApplicationBootstrap, BeforeApplicationShutdown {
  private readonly logger = new Logger('WebhookReceiver');
  private readonly abort = new AbortController();
  private readonly receivers: readonly QueuedReceiver[];
  private storeInTrouble = false;

  constructor(
    @Inject(WEBHOOK_RECEIVERS) receivers: ResolvedReceivers,
    @Inject(RECEIVER_SHUTDOWN) private readonly shutdown: ReceiverShutdown,
    private readonly dispatcher: WebhookDispatcher,
  ) {
    this.receivers = [...receivers.values()].filter(isQueued);
  }

  async onApplicationBootstrap(): Promise<void> {
    for (const receiver of this.receivers) {
      await receiver.queued.queue.consume((delivery, run) => this.run(receiver, delivery, run));
    }
  }

  /** At once with the requests' own wait: what is being handled may end, nothing more begins. */
  async beforeApplicationShutdown(): Promise<void> {
    const { clock, timeout } = this.shutdown;
    const deadline = clock.now() + timeout;
    await Promise.all(this.receivers.map(async (receiver) => this.stop(receiver, deadline)));
  }

  private async stop({ name, queued }: QueuedReceiver, deadline: number): Promise<void> {
    const left = await queued.queue.stop(deadline);
    if (left === 0) return;
    this.abort.abort();
    const fate = queued.queue.durable ? 'the queue keeps them' : 'they are lost';
    this.logger.warn(
      `${left} event(s) of receiver "${name}" were left unfinished at shutdown; ${fate}`,
    );
  }

  private async run(
    receiver: QueuedReceiver,
    delivery: WebhookDelivery,
    run: number,
  ): Promise<DeliveryOutcome> {
    const { received } = delivery;
    if (received?.receiver !== receiver.name) return this.leave(receiver, delivery);
    const event = eventOfDelivery(delivery, received, {
      run,
      signal: this.abort.signal,
      keeping: new EventKeeping(receiver.validator),
    });
    const reservation = await this.reserve(receiver, delivery, event);
    if ('type' in reservation) return reservation;
    const reception = new WebhookReception(event, reservation, receiver, NO_BODY);
    try {
      const handlers = await this.dispatcher.dispatch(event);
      if (handlers === 0) return await this.fail(receiver, reception, 'event_unhandled');
      reception.requireLease();
    } catch (error) {
      return this.fail(receiver, reception, 'handler_failed', error);
    }
    try {
      await reception.complete();
    } catch {
      // The queue drops the event now, so that it does not run again; only a queue that loses its own record of that repeats it.
      reception.abandon();
      this.tell(
        'warn',
        event,
        'was handled, but the replay store did not record it: if its queue hands it out again, it runs again',
      );
    }
    return { type: 'delivered' };
  }

  /** @returns the place of the run, or what becomes of a delivery that must not run now */
  private async reserve(
    receiver: QueuedReceiver,
    { id }: WebhookDelivery,
    event: WebhookEvent,
  ): Promise<ReplayReservation | DeliveryOutcome> {
    const { replayStore, clock, replayWindow: window, replayLease: lease } = receiver;
    try {
      const claim = handledClaim(id, event, { window, lease, now: clock.now() });
      const verdict = await replayStore.reserve(claim);
      this.storeInTrouble = false;
      if (verdict.status === 'reserved') return verdict.reservation;
      // Its last run has committed, and its process died before the queue was told.
      if (verdict.status === 'done') return { type: 'delivered' };
      const at = verdict.status === 'in-progress' ? verdict.retryAt : clock.now() + SOON;
      return { type: 'defer', at };
    } catch (error) {
      if (!this.storeInTrouble) {
        this.logger.error(
          `Queued events wait: ${error instanceof Error ? error.message : 'the replay store failed'}`,
        );
      }
      this.storeInTrouble = true;
      return { type: 'defer', at: clock.now() + SOON };
    }
  }

  private async fail(
    receiver: QueuedReceiver,
    reception: WebhookReception,
    reason: FailureReason,
    error?: unknown,
  ): Promise<DeliveryOutcome> {
    const { clock, queued } = receiver;
    const { event, leaseLost } = reception;
    const released = await reception.fail();
    const now = clock.now();
    if (leaseLost !== undefined) {
      this.tell('warn', event, 'could not be committed: its lease has ended, and it runs again');
      return { type: 'defer', at: now + SOON };
    }
    // Our own shutdown has cut it off, which says nothing about the handler.
    if (this.abort.signal.aborted) return { type: 'defer', at: now };
    for (const one of error instanceof AggregateError ? error.errors : [error]) {
      const run = `in run ${event.run} of ${queued.retry.attempts}`;
      if (isGuardRefusal(one)) {
        this.tell('warn', event, `was refused ${run} by the application: ${errorName(one)}`);
        continue;
      }
      const stack = one instanceof Error ? one.stack : undefined;
      this.tell('error', event, `failed ${run}: ${reason}`, stack);
    }
    // What its transaction has committed is handled, whatever came behind it: the store knows, when it is asked again. As a
    // failure it would wait longer than the record is kept, or be given up, and given another round.
    if (reception.committed && !released) return { type: 'defer', at: now + SOON };
    if (event.run >= queued.retry.attempts) {
      this.tell(
        'warn',
        event,
        `was given up after ${event.run} run(s): WebhookInbox lists it, and can give it another round`,
      );
      return { type: 'dead', reason, attempts: event.run };
    }
    const wait = spreadWait(queued.retry, event.run + 1, Math.random());
    return { type: 'retry', at: Math.round(now + wait), reason };
  }

  /** Somebody else's: of a receiver that was renamed, or of a queue that two use under one name. Its owner may come. */
  private leave(
    { name, clock }: QueuedReceiver,
    { id, received }: WebhookDelivery,
  ): DeliveryOutcome {
    const whose = received === undefined ? 'a publisher' : `receiver "${received.receiver}"`;
    quietly(() =>
      this.logger.error(
        `The queue of receiver "${name}" holds delivery ${id} of ${whose}: give every queue a name of its own, and every receiver the name its events came in by`,
      ),
    );
    return { type: 'defer', at: clock.now() + MUCH_LATER };
  }

  private tell(
    level: 'error' | 'warn',
    { event, id }: WebhookEvent,
    what: string,
    stack?: string,
  ): void {
    const line = `${event} (id ${id}) ${what}`;
    quietly(() =>
      stack === undefined ? this.logger[level](line) : this.logger[level](line, stack),
    );
  }
}

function isQueued(receiver: ResolvedReceiver): receiver is QueuedReceiver {
  return receiver.queued !== undefined;
}

/** The application's logger may throw, and what is known of an event must not get lost by it. */
function quietly(tell: () => void): void {
  try {
    tell();
  } catch {
    // There is nobody left to tell.
  }
}
