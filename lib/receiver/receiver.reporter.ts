import { Injectable, Logger } from '@nestjs/common';
import { isNativeError } from 'node:util/types';
import { errorName, isWebhookError } from '../errors/webhook.error.js';
import { distance, expiry, seconds } from '../explain/quote.js';
import { fromNodeRequest } from '../request/incoming-webhook.js';
import { isAuthenticatedRefusal } from '../request/open-request.js';
import { HandlerFailure, type WebhookAnswer } from './answers.js';
import { failedConstraints } from './handlers/payload-validator.js';
import { WebhookHandlerRegistry } from './handlers/webhook-handler.registry.js';
import { type AdapterRequest, nodeRequest, pathOfRequest } from './node-request.js';
import { endReceiving, receiving } from './receiver.channels.js';
import type { ResolvedReceiver } from './receiver-options.interface.js';
import type { ReceptionLog, RecordedAs } from './reception.js';
import type { ClaimedEvent } from './schemes/webhook-scheme.js';
import { webhookToken } from './schemes/webhook-token.scheme.js';
import type { WebhookEvent } from './webhook-event.js';

/** A request, and how it was answered. */
export interface AnsweredRequest {
  readonly answer: WebhookAnswer;
  readonly request: AdapterRequest;
  /** Absent if no receiver was chosen yet. */
  readonly receiver?: ResolvedReceiver | undefined;
  /** Absent if the request was refused before its event was admitted. */
  readonly event?: WebhookEvent | undefined;
  /** What was thrown on the way; absent on success. */
  readonly error?: unknown;
  /** Arrival of the request, of `receiving.now()`. */
  readonly arrivedAt?: number | undefined;
  /** Whether the event was acknowledged although no handler matches it. */
  readonly unhandled?: boolean | undefined;
}

/** What follows if an event could not be recorded. */
const UNRECORDED = {
  handled: 'its sender gets 503 and repeats it, and its handlers may run a second time',
  queued: 'its sender gets 503 and repeats it, and the queue keeps one copy',
  acknowledged: 'its sender got a success; if a copy arrives, it is handled again',
  run: 'its handlers may run again after a crash',
} as const satisfies Readonly<Record<RecordedAs, string>>;

/** Lines that are remembered, so that requests cannot repeat them without end. */
const MAX_REMEMBERED = 1_000;
/** Unhandled events that get a warning of their own; after that, one line says that there are more. */
const MAX_UNHANDLED_WARNINGS = 100;
/** Constraints that one line lists. */
const MAX_CONSTRAINTS = 10;

const EXPLAIN = 'To see why, capture the request and run "npx nestjs-webhook-token explain"';

/** Refusals that depend on the clocks of sender and receiver. */
const TIME_CODES: ReadonlySet<string> = new Set([
  'token_expired',
  'token_not_yet_valid',
  'token_too_old',
]);
/** Refusals by the replay store: the request itself is valid, so `explain` has nothing to find. */
const REPLAY_CODES: ReadonlySet<string> = new Set(['replayed', 'in_progress']);

/**
 * Logs how requests were answered, and passes it to the diagnostics channel and to observers.
 *
 * A refused request is logged at `debug` until its signature holds, because anyone can cause such a line, and at `warn`
 * after that. A line names event, id, issuer, key and failed constraints, and never a token, a payload or a value of it.
 */
@Injectable()
export class ReceiverReporter implements ReceptionLog {
  private readonly logger = new Logger('WebhookReceiver');
  private readonly unhandledEvents = new Set<string>();
  private readonly logged = new Set<string>();
  private storeOutageLogged = false;

  /**
   * Called with every answered request: the inbox, the console and tests. They must not throw.
   *
   * @hidden
   */
  readonly observers = new Set<(answered: AnsweredRequest) => void>();

  constructor(private readonly handlers: WebhookHandlerRegistry) {}

  /** Reports how a request was answered. */
  answered(answered: AnsweredRequest): void {
    for (const observe of this.observers) observe(answered);
    if (receiving.isObserved) endReceiving(answered);
    quietly(() => {
      if (answered.answer.problem !== undefined) return this.logProblem(answered);
      if (!this.storeOutageLogged) return;
      this.storeOutageLogged = false;
      this.logger.log('Replay store is available again; webhooks are accepted');
    });
  }

  /** Warns that an event without a handler was acknowledged, once per event name. */
  unhandled({ event, receiver }: WebhookEvent): void {
    const known = this.unhandledEvents;
    if (known.has(event) || known.size > MAX_UNHANDLED_WARNINGS) return;
    known.add(event);
    if (known.size > MAX_UNHANDLED_WARNINGS) {
      return this.warn('Many different events have no handler; further names are not logged');
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
  unrecorded({ event, id }: WebhookEvent, as: RecordedAs): void {
    const done = as === 'run' ? 'handled' : as;
    this.warn(
      `${event} (id ${id}) was ${done}, but the replay store did not record it: ${UNRECORDED[as]}`,
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

  private logProblem(answered: AnsweredRequest): void {
    const { answer, event, error } = answered;
    switch (answer.situation) {
      case 'handler_failed':
        return error === undefined ? this.logRefusal(answered) : this.logFailure(error, event);
      case 'store_unavailable':
        if (!this.storeOutageLogged)
          this.logger.error(`Webhooks are rejected with 503: ${withCause(error)}`);
        this.storeOutageLogged = true;
        return;
      case 'spool_unavailable':
        // Once per cause: senders of large bodies could otherwise fill the log.
        if (this.isFirst((error as Error).message))
          this.logger.error(
            `Webhooks with large bodies are rejected with 503: ${withCause(error)}`,
          );
        return;
      case 'payload_consumed':
        // Not the sender's mistake: as the application is set up, no webhook with a body can succeed.
        return this.logger.error(answer.problem?.detail);
      case 'lease_lost':
        return this.logger.warn(
          `${event?.event} (id ${event?.id}) could not be committed: its lease ended while the handler ran. The sender repeats it; if this happens often, set a longer replay.lease`,
        );
      default:
        this.logRefusal(answered);
    }
  }

  private logRefusal(answered: AnsweredRequest): void {
    const { answer, event, error } = answered;
    const isAuthenticated = event !== undefined || isAuthenticatedRefusal(error);
    if (!isAuthenticated && !Logger.isLevelEnabled('debug')) return;
    const request = nodeRequest(answered.request);
    const claimed = webhookToken.claims(fromNodeRequest(request, { kind: 'consumed' }));
    const line = describeRefusal(answered, claimed, isAuthenticated);
    const { issuer, id } = event ?? claimed;
    // A token can be sent any number of times, and a sender that repeats an event too early is answered so in normal operation.
    const isWarning =
      isAuthenticated &&
      answer.situation !== 'in_progress' &&
      this.isFirst(JSON.stringify([answer.situation, issuer, id]));
    this.logger[isWarning ? 'warn' : 'debug'](line);
  }

  private logFailure(error: unknown, event: WebhookEvent | undefined): void {
    const cause = error instanceof HandlerFailure ? error.cause : error;
    for (const failure of cause instanceof AggregateError ? cause.errors : [cause]) {
      this.logger.error(
        event === undefined
          ? `A webhook could not be verified: ${errorName(failure)}`
          : `A handler of ${event.event} failed (id ${event.id})`,
        stackOf(failure),
      );
    }
  }

  private isFirst(line: string): boolean {
    if (this.logged.has(line)) return false;
    if (this.logged.size >= MAX_REMEMBERED) this.logged.clear();
    this.logged.add(line);
    return true;
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

function describeRefusal(
  { answer, request, receiver, event, error }: AnsweredRequest,
  claimed: ClaimedEvent,
  isAuthenticated: boolean,
): string {
  const name = event?.receiver ?? receiver?.name;
  const where = `${name === undefined ? '' : `receiver "${name}" `}at ${pathOfRequest(request)}`;
  const named = { event: event?.event ?? claimed.event, id: event?.id ?? claimed.id };
  const claims = Object.entries({
    ...named,
    issuer: event?.issuer ?? claimed.issuer,
    kid: claimed.kid,
  }).flatMap(([claim, value]) => (value === undefined ? [] : [`${claim} "${value}"`]));
  const code = isWebhookError(error) ? error.code : undefined;
  if (code !== undefined && TIME_CODES.has(code))
    claims.push(...clockDifference(claimed, receiver));
  const details = [where, ...(claims.length === 0 ? [] : [claims.join(', ')])];
  const shown = details.join(isAuthenticated ? ', ' : '; unverified: ');
  const isExplainable = code !== undefined && !REPLAY_CODES.has(code);
  return `Refused with ${reasonOf(answer, error)} (${shown})${isExplainable ? `. ${EXPLAIN}` : ''}`;
}

/** Status and code as the sender gets them, and why; without a value of the request. */
function reasonOf({ situation, status, problem }: WebhookAnswer, error: unknown): string {
  const cause = error instanceof HandlerFailure ? error.cause : error;
  if (situation === 'application_refused') {
    return `${status} by the application${cause === undefined ? '' : `: ${errorName(cause)}`}`;
  }
  const code = problem?.code ?? situation;
  if (situation !== 'validation_failed') return `${status} ${code}: ${problem?.detail}`;
  const constraints = failedConstraints(cause);
  if (constraints.length === 0) return `${status} ${code}: ${problem?.title}`;
  const more = constraints.length - MAX_CONSTRAINTS;
  const listed = constraints.slice(0, MAX_CONSTRAINTS).join(', ');
  return `${status} ${code}: failed: ${listed}${more > 0 ? `, and ${more} more` : ''}`;
}

function clockDifference(
  { issuedAt, expiresAt }: ClaimedEvent,
  receiver: ResolvedReceiver | undefined,
): string[] {
  if (issuedAt === undefined || expiresAt === undefined || receiver === undefined) return [];
  const now = receiver.clock.now();
  return [
    `issued ${distance((now - Date.parse(issuedAt)) / 1_000)}`,
    expiry((Date.parse(expiresAt) - now) / 1_000),
    `clock tolerance ${seconds(receiver.clockTolerance)}`,
  ];
}

function withCause(error: unknown): string {
  const { message, cause } = error as Error;
  return isNativeError(cause) ? `${message}: ${cause.message}` : message;
}

function stackOf(error: unknown): string | undefined {
  return error instanceof Error ? error.stack : undefined;
}
