import { isNativeError } from 'node:util/types';
import { Injectable, Logger } from '@nestjs/common';
import { errorName, isWebhookError, quietly } from '../errors/webhook.error.js';
import { distance, expiry, seconds } from '../explain/quote.js';
import { webhookToken } from '../request/open-request.js';
import type { WebhookAnswer } from '../request/webhook-answers.js';
import type { ClaimedEvent } from '../request/webhook-scheme.js';
import { errorsOfHandlers, HandlerFailure } from './error-answers.js';
import { failedConstraints } from './handlers/payload-validator.js';
import { WebhookHandlerRegistry } from './handlers/webhook.dispatcher.js';
import { fromNodeRequest, nodeRequest, pathOfRequest, type RequestHead } from './node-http.js';
import { endReceiving, receiving } from './receiver.channels.js';
import type { ResolvedReceiver } from './receiver-options.resolver.js';
import type { EventStage } from './reception.js';
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

const UNRECORDED = {
  handled: 'its sender gets 503 and repeats it, and its handlers may run a second time',
  queued: 'its sender gets 503 and repeats it, and the queue keeps one copy',
  acknowledged: 'its sender got a success; if a copy arrives, it is handled again',
  run: 'its handlers may run again after a crash',
} as const satisfies Readonly<Record<EventStage, string>>;

/** Unhandled events of a receiver that get a warning of their own; after that, one line says that there are more. */
const MAX_UNHANDLED_WARNINGS = 100;

const MAX_REMEMBERED = 1_000;
const MAX_CONSTRAINTS = 10;
/** Errors whose stacks are logged for one failure: it, those that it gathers, and causes. */
const MAX_STACKS = 10;
/** Characters that are logged of a thrown value that is no Error. */
const MAX_THROWN = 1_024;

const EXPLAIN = 'To see why, capture the request and run "npx nestjs-webhook-token explain"';
const EXPLAIN_SENDER = 'To see why, pass the request to WebhookVerifier.explain()';

const TIME_CODES: ReadonlySet<string> = new Set([
  'token_expired',
  'token_not_yet_valid',
  'token_too_old',
]);
/** Refusals by the replay store: the request itself is valid, so `explain` has nothing to find. */
const REPLAY_CODES: ReadonlySet<string> = new Set(['replayed', 'in_progress']);

/**
 * Reports how requests were answered: to the log, to the diagnostics channel and to observers.
 *
 * A rejected request is logged at `debug` until its signature holds, because anyone can cause such a line, and at `warn` after that. A
 * line names event, id, issuer, key and failed constraints, and never a token, a payload or a value of it.
 */
@Injectable()
export class ReceiverReporter {
  private readonly logger = new Logger('WebhookReceiver');
  /** Names of events without a handler, by receiver. */
  private readonly unhandledEvents = new Map<string, Set<string>>();
  /** Rejections that were logged, so that requests cannot repeat them without end. */
  private readonly logged = new Set<string>();
  /** The receivers whose outage was logged. */
  private readonly outages = new Set<string>();

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
    quietly(() => this.log(answered));
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

  private log(answered: AnsweredRequest): void {
    const { answer, event } = answered;
    if (answer.problem !== undefined) return this.logRejection(answered);
    // A success without an event, such as a challenge, did not need the store.
    if (event === undefined || !this.outages.delete(event.receiver)) return;
    this.logger.log(`Receiver "${event.receiver}" accepts webhooks again: its store is available`);
  }

  private logRejection(answered: AnsweredRequest): void {
    const { answer, event, error } = answered;
    const receiver = receiverOf(answered);
    switch (answer.situation) {
      case 'handler_failed':
        return error === undefined ? this.logRefusal(answered) : this.logFailure(error, event);
      case 'store_unavailable':
        if (this.outages.has(receiver)) return;
        this.outages.add(receiver);
        return this.logger.error(
          `Receiver "${receiver}" rejects webhooks with 503: ${withCause(error)}`,
        );
      case 'keys_unavailable':
        this.logMissingKeys(receiver, error as Error);
        return this.logRefusal(answered);
      case 'spool_unavailable':
        // Once per cause: senders of large bodies could otherwise fill the log.
        if (!this.isFirst(receiver, (error as Error).message)) return;
        return this.logger.error(
          `Receiver "${receiver}" rejects webhooks with large bodies with 503: ${withCause(error)}`,
        );
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

  /** Once per message: any request can cause it. Without the message of the cause, which may quote the request. */
  private logMissingKeys(receiver: string, { message, cause }: Error): void {
    if (cause === undefined || !this.isFirst(receiver, message)) return;
    const stack = isNativeError(cause) ? cause.stack : undefined;
    const frames = stack?.split('\n').filter((line) => line.startsWith('    at '));
    this.logger.error(
      `Receiver "${receiver}" rejects webhooks with 503: ${message}`,
      frames?.join('\n'),
    );
  }

  private logRefusal(answered: AnsweredRequest): void {
    const { answer, event, error, receiver } = answered;
    const scheme = receiver?.scheme ?? webhookToken;
    const isAuthenticated = event !== undefined || scheme.isAuthenticated(error);
    if (!isAuthenticated && !isDebugEnabled()) return;
    const request = nodeRequest(answered.request);
    const claimed = scheme.claims(fromNodeRequest(request, { kind: 'consumed' }));
    const line = describeRefusal(answered, claimed, isAuthenticated);
    const { issuer, id } = event ?? claimed;
    // A token can be sent any number of times, and in normal operation a sender may repeat an event too early.
    const isWarning =
      isAuthenticated &&
      answer.situation !== 'in_progress' &&
      this.isFirst(receiverOf(answered), answer.situation, issuer, id);
    this.logger[isWarning ? 'warn' : 'debug'](line);
  }

  private logFailure(error: unknown, event: WebhookEvent | undefined): void {
    for (const failure of errorsOfHandlers(error)) {
      this.logger.error(
        event === undefined
          ? `A webhook could not be verified: ${errorName(failure)}`
          : `A handler of ${event.event} failed (id ${event.id})`,
        stackOf(failure),
      );
    }
  }

  private isFirst(...facts: readonly unknown[]): boolean {
    const line = JSON.stringify(facts);
    if (this.logged.has(line)) return false;
    if (this.logged.size >= MAX_REMEMBERED) this.logged.clear();
    this.logged.add(line);
    return true;
  }
}

/** If no levels are set, Nest 11 reports even `fatal` as disabled, which any list of levels enables, and logs at every level. */
function isDebugEnabled(): boolean {
  return Logger.isLevelEnabled('debug') || !Logger.isLevelEnabled('fatal');
}

/** The name of the receiver; empty if the request was refused before one was chosen. */
function receiverOf({ event, receiver }: AnsweredRequest): string {
  return event?.receiver ?? receiver?.name ?? '';
}

function describeRefusal(
  answered: AnsweredRequest,
  claimed: ClaimedEvent,
  isAuthenticated: boolean,
): string {
  const { answer, request, receiver, event, error } = answered;
  const name = receiverOf(answered);
  const where = `${name === '' ? '' : `receiver "${name}" `}at ${pathOfRequest(request)}`;
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
  const explain = receiver?.takesTokens === false ? EXPLAIN_SENDER : EXPLAIN;
  return `Refused with ${reasonOf(answer, error)} (${shown})${isExplainable ? `. ${explain}` : ''}`;
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

/** The stacks of an error, of the errors that it gathers and of their causes; of any other value, what {@link thrownValue} shows. */
export function stackOf(error: unknown): string {
  const seen = new Set<unknown>();
  const linesOf = (one: unknown): string[] => {
    if (seen.has(one) || seen.size >= MAX_STACKS) return [];
    seen.add(one);
    if (!isError(one)) return [thrownValue(one)];
    const [, ...gathered] = withGathered(one);
    const lines = [one.stack ?? thrownValue(one), ...gathered.flatMap(linesOf)];
    const [cause, ...more] = one.cause === undefined ? [] : linesOf(one.cause);
    return cause === undefined ? lines : [...lines, `Caused by: ${cause}`, ...more];
  };
  const lines = linesOf(error);
  return isError(error) ? lines.join('\n') : `Thrown: ${lines.join()}`;
}

/** An Error, also of another realm, such as a test's. */
function isError(value: unknown): value is Error {
  return value instanceof Error || isNativeError(value);
}

/** Name and message of an object, which may have other members that are secret; any other value as a string. */
function thrownValue(value: unknown): string {
  if (typeof value === 'function') return typeof value;
  if (typeof value !== 'object' || value === null) return shortened(String(value));
  const { name, message } = value as { readonly name?: unknown; readonly message?: unknown };
  const known = [name, message].filter((one) => typeof one === 'string' && one !== '');
  return known.length === 0 ? typeof value : shortened(known.join(': '));
}

function shortened(value: string): string {
  return value.length > MAX_THROWN ? `${value.slice(0, MAX_THROWN)}…` : value;
}

/** An error, and those that it gathers: that of `Promise.any` says nothing by itself. */
export function withGathered(error: unknown): readonly unknown[] {
  const errors: unknown = error instanceof AggregateError ? error.errors : undefined;
  return Array.isArray(errors) ? [error, ...(errors as unknown[])] : [error];
}
