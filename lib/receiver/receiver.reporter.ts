import { Injectable, Logger } from '@nestjs/common';
import type { IncomingMessage } from 'node:http';
import { isNativeError } from 'node:util/types';
import { errorName, isWebhookError } from '../errors/webhook.error.js';
import { distance, expiry, seconds } from '../explain/quote.js';
import { readBearerToken } from '../request/bearer-token.js';
import { fromNodeRequest } from '../request/incoming-webhook.js';
import { isAuthenticatedRefusal } from '../request/open-request.js';
import { readReceipt, type ReceivedReceipt } from '../token/webhook-receipt.js';
import { HandlerFailure, type WebhookAnswer } from './answers.js';
import { failedConstraints } from './handlers/payload-validator.js';
import { WebhookHandlerRegistry } from './handlers/webhook-handler.registry.js';
import { InboxRecorder } from './inbox/inbox.recorder.js';
import type { ResolvedReceiver } from './receiver-options.interface.js';
import { receiving } from './receiver.channels.js';
import { type AdapterRequest, nodeRequest, pathOfRequest } from './node-request.js';
import type { ReceptionLog, RecordedAs } from './reception.js';
import { internalsOf, type WebhookEvent } from './webhook-event.js';

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

/** Unhandled events that get a warning of their own; after that, one line says that there are more. */
const MAX_UNHANDLED_WARNINGS = 100;
/** Refused events that are remembered, so that a copy does not repeat the warning. */
const MAX_REMEMBERED_REFUSALS = 1_000;
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
 * Logs how requests were answered and publishes it on the diagnostics channel.
 *
 * A refused request is logged at `debug` until its signature holds, because anyone can cause such a line, and at `warn`
 * after that. A line names event, id, issuer, key and failed constraints, and never a token, a payload or a value of it.
 */
@Injectable()
export class ReceiverReporter implements ReceptionLog {
  private readonly logger = new Logger('WebhookReceiver');
  private readonly unhandledEvents = new Set<string>();
  private readonly spoolFailures = new Set<string>();
  private readonly refusedEvents = new Set<string>();
  private storeOutageLogged = false;

  /**
   * Called with every answered request; for tests.
   *
   * @hidden
   */
  readonly observers = new Set<(answered: AnsweredRequest) => void>();

  constructor(
    private readonly handlers: WebhookHandlerRegistry,
    private readonly inbox: InboxRecorder,
  ) {}

  /** Reports how a request was answered. */
  answered(answered: AnsweredRequest): void {
    for (const observe of this.observers) observe(answered);
    if (receiving.isObserved) publishReceived(answered);
    this.inbox.answered(answered);
    const { answer } = answered;
    if (answer.problem !== undefined) quietly(() => this.logProblem(answered));
    else if (this.storeOutageLogged) quietly(() => this.logStoreRecovery());
  }

  /** Warns that an event without a handler was acknowledged, once per event name. */
  unhandled({ event, receiver }: WebhookEvent): void {
    const known = this.unhandledEvents;
    if (known.has(event) || known.size > MAX_UNHANDLED_WARNINGS) return;
    known.add(event);
    quietly(() =>
      this.logger.warn(
        known.size > MAX_UNHANDLED_WARNINGS
          ? 'Many different events have no handler; further names are not logged'
          : `No handler for ${event} on receiver "${receiver}": it was acknowledged and dropped. ${this.remedyFor(event, receiver)}, or set unhandledEvent: 'reject'`,
      ),
    );
  }

  /** Warns that the replay store did not record an event, and says what its sender does now. */
  unrecorded({ event, id }: WebhookEvent, as: RecordedAs): void {
    quietly(() =>
      this.logger.warn(
        `${event} (id ${id}) was ${as === 'run' ? 'handled' : as}, but the replay store did not record it: ${UNRECORDED[as]}`,
      ),
    );
  }

  /** Warns that another process took over an event while a handler was running. */
  takenOver({ event, id }: WebhookEvent): void {
    quietly(() =>
      this.logger.warn(
        `${event} (id ${id}) was handled, but its lease had expired, and another process took it over: it may be handled twice`,
      ),
    );
  }

  /** Logs an error that no answer accounts for: a bug in the library or in an adapter. */
  unanswerable(error: unknown): void {
    quietly(() => this.logger.error('A webhook could not be answered', stackOf(error)));
  }

  private remedyFor(event: string, receiver: string): string {
    const nearest = this.handlers.nearestPattern(receiver, event);
    return nearest === undefined
      ? `Add @OnWebhookEvent('${event}') (is the module of its handler imported?)`
      : `The nearest pattern is '${nearest}': is it misspelt? Otherwise add @OnWebhookEvent('${event}') (is the module of its handler imported?)`;
  }

  private logProblem(answered: AnsweredRequest): void {
    const { answer, event, error } = answered;
    switch (answer.situation) {
      case 'handler_failed':
        return error === undefined ? this.logRefusal(answered) : this.logFailure(error, event);
      case 'store_unavailable':
        return this.logStoreOutage(error);
      case 'spool_unavailable':
        return this.logSpoolFailure(error);
      case 'payload_consumed':
        // Not the sender's mistake: as the application is set up, no webhook with a body can succeed.
        this.logger.error(answer.problem?.detail);
        return;
      case 'lease_lost':
        this.logger.warn(
          `${event?.event} (id ${event?.id}) could not be committed: its lease ended while the handler ran. The sender repeats it; if this happens often, set a longer replay.lease`,
        );
        return;
      default:
        this.logRefusal(answered);
    }
  }

  private logRefusal(answered: AnsweredRequest): void {
    const { answer, event, error } = answered;
    const authenticated = event !== undefined || isAuthenticatedRefusal(error);
    if (!authenticated && !Logger.isLevelEnabled('debug')) return;
    const token = readToken(nodeRequest(answered.request));
    const isWarning = authenticated && this.isWorthAWarning(answer, event ?? token);
    const line = describeRefusal(answered, token, authenticated);
    if (isWarning) this.logger.warn(line);
    else this.logger.debug(line);
  }

  /** A refused token can be sent any number of times; only the first is worth a warning. */
  private isWorthAWarning(
    { situation }: WebhookAnswer,
    { issuer, id }: { readonly issuer?: string; readonly id?: string } = {},
  ): boolean {
    // A sender that repeats an event too early is answered so in normal operation.
    if (situation === 'in_progress') return false;
    const refusal = JSON.stringify([situation, issuer, id]);
    if (this.refusedEvents.has(refusal)) return false;
    if (this.refusedEvents.size >= MAX_REMEMBERED_REFUSALS) this.refusedEvents.clear();
    this.refusedEvents.add(refusal);
    return true;
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

  /** Once per outage, not once per request. */
  private logStoreOutage(error: unknown): void {
    if (this.storeOutageLogged) return;
    this.storeOutageLogged = true;
    this.logger.error(`Webhooks are answered with 503: ${withCause(error)}`);
  }

  private logStoreRecovery(): void {
    this.storeOutageLogged = false;
    this.logger.log('Replay store is available again; webhooks are accepted');
  }

  /** Once per cause: senders of large bodies could otherwise fill the log. */
  private logSpoolFailure(error: unknown): void {
    const { message } = error as Error;
    if (this.spoolFailures.has(message)) return;
    this.spoolFailures.add(message);
    this.logger.error(`Webhooks with large bodies are answered with 503: ${withCause(error)}`);
  }
}

/** Ends the observed request. One that was refused before its event was admitted is observed now, as a whole. */
function publishReceived(answered: AnsweredRequest): void {
  const { answer, request, receiver, event, arrivedAt, unhandled = false } = answered;
  const operation =
    (event && internalsOf(event).receiving) ??
    receiving.begin(
      () => ({
        method: nodeRequest(request).method ?? '',
        receiver: event?.receiver ?? receiver?.name,
        event: event?.event,
        eventId: event?.id,
        issuer: event?.issuer,
        verificationMs: arrivedAt === undefined ? 0 : performance.now() - arrivedAt,
      }),
      arrivedAt,
    );
  operation?.end({
    situation: answer.situation,
    code: answer.problem?.code,
    status: answer.status,
    route: pathOfRequest(request),
    unhandled,
  });
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
  token: TokenFacts | undefined,
  authenticated: boolean,
): string {
  const name = event?.receiver ?? receiver?.name;
  const where = `${name === undefined ? '' : `receiver "${name}" `}at ${pathOfRequest(request)}`;
  const facts = { ...token, ...(event !== undefined && identify(event)) };
  const claims = [
    ...list('event', facts.event),
    ...list('id', facts.id),
    ...list('issuer', facts.issuer),
    ...list('kid', facts.kid),
    ...(isWebhookError(error) && TIME_CODES.has(error.code) && receiver !== undefined
      ? clockDifference(facts, receiver)
      : []),
  ].join(', ');
  const details = [where, ...(claims === '' ? [] : [claims])].join(
    authenticated ? ', ' : '; unverified: ',
  );
  const isExplainable = isWebhookError(error) && !REPLAY_CODES.has(error.code);
  return `Refused with ${reasonOf(answer, error)} (${details})${isExplainable ? `. ${EXPLAIN}` : ''}`;
}

/** Status and code as the sender gets them, and why; without a value of the request. */
function reasonOf({ situation, status, problem }: WebhookAnswer, error: unknown): string {
  if (situation === 'application_refused') {
    if (error === undefined) return `${status} by the application`;
    const cause = error instanceof HandlerFailure ? error.cause : error;
    return `${status} by the application: ${errorName(cause)}`;
  }
  const code = problem?.code ?? situation;
  if (situation !== 'validation_failed') return `${status} ${code}: ${problem?.detail}`;
  const constraints = failedConstraints(error instanceof HandlerFailure ? error.cause : error);
  if (constraints.length === 0) return `${status} ${code}: ${problem?.title}`;
  const listed = constraints.slice(0, MAX_CONSTRAINTS).join(', ');
  const more = constraints.length - MAX_CONSTRAINTS;
  return `${status} ${code}: failed: ${listed}${more > 0 ? `, and ${more} more` : ''}`;
}

function list(name: string, value: string | undefined): string[] {
  return value === undefined ? [] : [`${name} "${value}"`];
}

function clockDifference(
  { issuedAt, expiresAt }: TokenFacts,
  { clock, clockTolerance }: ResolvedReceiver,
): string[] {
  if (issuedAt === undefined || expiresAt === undefined) return [];
  const now = clock.now();
  return [
    `issued ${distance((now - Date.parse(issuedAt)) / 1_000)}`,
    expiry((Date.parse(expiresAt) - now) / 1_000),
    `clock tolerance ${seconds(clockTolerance)}`,
  ];
}

type TokenFacts = Partial<Omit<ReceivedReceipt, 'authenticated'>>;

function identify({ event, id, issuer }: WebhookEvent): TokenFacts {
  return { event, id, issuer };
}

/** What the token of a request says, if it can be read; only names and times of the form they must have. */
function readToken(request: IncomingMessage): TokenFacts | undefined {
  const { method, headers } = fromNodeRequest(request, { kind: 'consumed' });
  try {
    return readReceipt(readBearerToken(headers), { method, bodyBytes: 0 });
  } catch {
    return undefined;
  }
}

function withCause(error: unknown): string {
  const { message, cause } = error as Error;
  return isNativeError(cause) ? `${message}: ${cause.message}` : message;
}

function stackOf(error: unknown): string | undefined {
  return error instanceof Error ? error.stack : undefined;
}
