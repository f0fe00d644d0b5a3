import { Injectable, Logger } from '@nestjs/common';
import type { WebhookAnswer } from '../request/webhook-answers.js';
import { WebhookHandlerRegistry } from './handlers/webhook.dispatcher.js';
import type { RequestHead } from './node-http.js';
import { endReceiving, receiving } from './receiver.channels.js';
import type { ResolvedReceiver } from './receiver-options.interface.js';
import type { EventStage } from './reception.js';
import { RejectionLog, stackOf } from './rejection-log.js';
import type { WebhookEvent } from './webhook-event.js';

export interface AnsweredRequest {
  readonly answer: WebhookAnswer;
  readonly request: RequestHead | { readonly raw: RequestHead };
  /** Absent if no receiver was chosen yet. */
  readonly receiver?: ResolvedReceiver | undefined;
  /** Absent if the request was refused before its event was admitted. */
  readonly event?: WebhookEvent | undefined;
  /** What was thrown on the way; absent on success. */
  readonly error?: unknown;
  /** Arrival of the request, of `receiving.now()`. */
  readonly arrivedAt?: number | undefined;
  /** Whether no handler matches the event, which is acknowledged or refused. */
  readonly unhandled?: boolean | undefined;
}

/** What follows if an event could not be recorded. */
const UNRECORDED = {
  handled: 'its sender gets 503 and repeats it, and its handlers may run a second time',
  queued: 'its sender gets 503 and repeats it, and the queue keeps one copy',
  acknowledged: 'its sender got a success; if a copy arrives, it is handled again',
  run: 'its handlers may run again after a crash',
} as const satisfies Readonly<Record<EventStage, string>>;

/** Unhandled events of a receiver that get a warning of their own; after that, one line says that there are more. */
const MAX_UNHANDLED_WARNINGS = 100;

/** Reports how requests were answered: to the log, to the diagnostics channel and to observers. */
@Injectable()
export class ReceiverReporter {
  private readonly logger = new Logger('WebhookReceiver');
  /** Names of events without a handler, by receiver. */
  private readonly unhandledEvents = new Map<string, Set<string>>();
  private readonly rejections = new RejectionLog(this.logger);

  /**
   * Called with every answered request: the inbox, the console and tests.
   *
   * @hidden
   */
  readonly observers = new Set<(answered: AnsweredRequest) => void>();

  constructor(private readonly handlers: WebhookHandlerRegistry) {}

  report(answered: AnsweredRequest): void {
    // The event is settled: an error here must not turn its success into a failure.
    for (const observe of this.observers) quietly(() => observe(answered));
    if (receiving.isObserved) endReceiving(answered);
    quietly(() => this.rejections.log(answered));
  }

  /** Warns that an event without a handler was acknowledged, once per receiver and event name. */
  unhandled({ event, receiver }: WebhookEvent): void {
    const known = this.unhandledEvents.get(receiver) ?? new Set();
    this.unhandledEvents.set(receiver, known);
    if (known.has(event) || known.size > MAX_UNHANDLED_WARNINGS) return;
    known.add(event);
    if (known.size > MAX_UNHANDLED_WARNINGS) {
      return this.warn(
        `Many different events of receiver "${receiver}" have no handler; further names are not logged`,
      );
    }
    const nearest = this.handlers.nearestPattern(receiver, event);
    const add = `dd @OnWebhookEvent('${event}') (is the module of its handler imported?)`;
    const remedy =
      nearest === undefined
        ? `A${add}`
        : `The nearest pattern is '${nearest}': is it misspelt? Otherwise a${add}`;
    this.warn(
      `No handler for ${event} on receiver "${receiver}": it was acknowledged and dropped. ${remedy}, or set unhandledEvent: 'reject'`,
    );
  }

  /** Warns that the replay store did not record an event, and says what its sender does now. */
  unrecorded({ event, id }: WebhookEvent, stage: EventStage): void {
    const done = stage === 'run' ? 'handled' : stage;
    this.warn(
      `${event} (id ${id}) was ${done}, but the replay store did not record it: ${UNRECORDED[stage]}`,
    );
  }

  /** Warns that another process took over an event while a handler was running. */
  takenOver({ event, id }: WebhookEvent): void {
    this.warn(
      `${event} (id ${id}) was handled, but its lease had expired, and another process took it over: it may be handled twice`,
    );
  }

  /** Logs an error that no answer accounts for: a bug in the library or in an adapter. */
  unanswerable(error: unknown): void {
    quietly(() => this.logger.error('A webhook could not be answered', stackOf(error)));
  }

  private warn(line: string): void {
    quietly(() => this.logger.warn(line));
  }
}

/** Logs. A failing logger must not change the outcome of a request or of a run. */
export function quietly(log: () => void): void {
  try {
    log();
  } catch {
    // There is nowhere else to report it.
  }
}
