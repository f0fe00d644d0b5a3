import { type Operation, OperationChannels, type TraceContext } from '../diagnostics/operation.js';
import { errorType } from '../errors/webhook.error.js';
import type { IncomingWebhook, RequestHeaders } from '../request/webhook-scheme.js';
import { nodeRequest, pathOfRequest } from './node-http.js';
import type { AnsweredRequest } from './receiver.reporter.js';
import { internalsOf, type WebhookEvent } from './webhook-event.js';

/** What is known of a request once it is verified or refused. */
interface ReceivingFacts {
  readonly method: string;
  /** Absent if the request was refused before a receiver was chosen. */
  readonly receiver: string | undefined;
  /** The event's name, id and issuer, once they are verified. */
  readonly event: string | undefined;
  readonly eventId: string | undefined;
  readonly issuer: string | undefined;
  /** Milliseconds until the request was verified or refused. */
  readonly verificationMs: number;
}

/** How a request was answered. */
interface ReceivingOutcome {
  /** Row of the answer table. */
  readonly situation: string;
  /** The code the sender gets; absent on success, and where the application refused the request. */
  readonly code: string | undefined;
  readonly status: number;
  /** The path, or the pattern of a route of the application. */
  readonly route: string;
  /** Whether the event had no handler. */
  readonly unhandled: boolean;
}

/** Published for every request that a receiver answered. It contains no secret and no payload. */
export interface WebhookReceivedMessage extends ReceivingFacts, ReceivingOutcome {
  /** Milliseconds from the arrival of the request to its answer. */
  readonly durationMs: number;
}

interface HandlingFacts {
  /** `Class.method`. */
  readonly handler: string;
  readonly receiver: string;
  readonly event: string;
  readonly eventId: string;
  readonly issuer: string;
  /** 1, or the number of the run of a queued event. */
  readonly run: number;
}

/** Published when a handler has ended. It contains no payload and no message of an error. */
export interface WebhookHandledMessage extends HandlingFacts {
  readonly durationMs: number;
  /** Code or class name of the error; absent on success. */
  readonly error?: string;
}

/** Name of the diagnostics channel that receivers publish to, for metrics and traces. */
export const WEBHOOK_RECEIVED_CHANNEL = 'nestjs-webhook-token:received';
/** Name of the diagnostics channel of {@link WebhookHandledMessage}. */
export const WEBHOOK_HANDLED_CHANNEL = 'nestjs-webhook-token:handled';

export type ReceivingOperation = Operation<
  ReceivingFacts & { readonly trace?: TraceContext | undefined },
  ReceivingOutcome
>;

export const receiving = new OperationChannels<ReceivingOperation['facts'], ReceivingOutcome>(
  'nestjs-webhook-token:receiving',
  WEBHOOK_RECEIVED_CHANNEL,
);

/** The trace in which a queued event was received. */
export interface QueuedTrace {
  readonly trace: TraceContext;
  /** Milliseconds from its arrival to this run. */
  readonly ageMs: number;
}

export type HandlingOperation = Operation<
  HandlingFacts & { readonly queued?: QueuedTrace | undefined },
  Pick<WebhookHandledMessage, 'error'>
>;

export const handling = new OperationChannels<
  HandlingOperation['facts'],
  Pick<WebhookHandledMessage, 'error'>
>('nestjs-webhook-token:handling', WEBHOOK_HANDLED_CHANNEL);

/**
 * Observes a request from here on, once it is verified: the trace context of any other request is not trusted.
 *
 * @param arrivedAt - of `receiving.now()`
 */
export function observeReceiving(
  event: WebhookEvent,
  { method, headers }: IncomingWebhook,
  arrivedAt: number,
): void {
  internalsOf(event).receiving = receiving.begin(
    () => ({
      method,
      receiver: event.receiver,
      event: event.event,
      eventId: event.id,
      issuer: event.issuer,
      verificationMs: performance.now() - arrivedAt,
      trace: traceOf(headers),
    }),
    arrivedAt,
  );
}

export function observeHandler<T>(
  handler: string,
  event: WebhookEvent,
  call: () => T | Promise<T>,
): Promise<T> {
  const makeFacts = (): HandlingOperation['facts'] => ({
    handler,
    receiver: event.receiver,
    event: event.event,
    eventId: event.id,
    issuer: event.issuer,
    run: event.run,
    queued: internalsOf(event).queued,
  });
  return handling.observe(makeFacts, call, {
    of: () => ({}),
    failed: (error) => ({ error: errorType(error) }),
  });
}

/** Ends an observed request. One that was refused before its event was admitted is observed now, as a whole. */
export function endReceiving(answered: AnsweredRequest): void {
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

/** Several `traceparent` headers are invalid; several `tracestate` headers are one list. */
function traceOf(headers: RequestHeaders): TraceContext | undefined {
  const [traceparent, ...more] = headers.all('traceparent');
  if (traceparent === undefined || more.length > 0) return undefined;
  return { traceparent, tracestate: headers.all('tracestate').join(',') || undefined };
}
