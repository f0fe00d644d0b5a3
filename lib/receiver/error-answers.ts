import { HttpException } from '@nestjs/common';
import { isWebhookError, type WebhookError } from '../errors/webhook.error.js';
import {
  refuse,
  WEBHOOK_ANSWERS,
  type WebhookAnswer,
  type WebhookSituation,
} from '../request/webhook-answers.js';

/** Wraps what a handler threw, so that an error of this package thrown by a handler is not answered as a refused token. */
export class HandlerFailure {
  constructor(readonly cause: unknown) {}
}

/** The errors of several handlers of one event. An AggregateError that a handler throws itself is one error of one handler. */
export class HandlerErrors extends AggregateError {}

/** What each failed handler of an event threw; any other error is one of its own. */
export function errorsOfHandlers(error: unknown): readonly unknown[] {
  const cause = error instanceof HandlerFailure ? error.cause : error;
  return cause instanceof HandlerErrors ? cause.errors : [cause];
}

const guardRefusals = new WeakSet<HttpException>();

/** Marks an exception as thrown by a guard: its handler did not run, so it did not fail either. */
export function markGuardRefusal(error: unknown): void {
  if (error instanceof HttpException) guardRefusals.add(error);
}

/** Whether a guard of the application threw this, and no handler. */
export function isGuardRefusal(error: unknown): boolean {
  return error instanceof HttpException && guardRefusals.has(error);
}

/**
 * The answer to any error.
 *
 * @param takesTokens - whether the receiver accepts tokens, so that a Bearer challenge may ask for one
 */
export function answerTo(error: unknown, takesTokens = true): WebhookAnswer {
  const answer = answerToError(error);
  if (takesTokens || answer.headers['WWW-Authenticate'] === undefined) return answer;
  const { 'WWW-Authenticate': _, ...headers } = answer.headers;
  return { ...answer, headers };
}

function answerToError(error: unknown): WebhookAnswer {
  if (error instanceof WebhookException) return error.answer;
  if (error instanceof HandlerFailure) return answerToFailedHandler(error);
  if (error instanceof HttpException) return answerToForeignRefusal(error);
  if (isWebhookError(error)) {
    const situation = situationOf(error.code);
    // A sender must not learn where the store is or how full it is.
    const detail = situation === 'store_unavailable' ? undefined : error.message;
    if (situation !== undefined) return refuse(situation, { detail, allow: allowOf(error) });
  }
  return refuse('handler_failed');
}

function situationOf(code: string): WebhookSituation | undefined {
  if (code === 'store_full' || code === 'schema_behind') return 'store_unavailable';
  return Object.hasOwn(WEBHOOK_ANSWERS, code) ? (code as WebhookSituation) : undefined;
}

/** A wire format may allow one method only. */
function allowOf(error: WebhookError): string | undefined {
  return (error as { methods?: readonly string[] }).methods?.join(', ');
}

function answerToFailedHandler(error: unknown): WebhookAnswer {
  const causes = errorsOfHandlers(error);
  const refusals = causes.map(readRefusal);
  const [first] = refusals;
  // If handlers refused with different statuses, none of them is the answer.
  if (first === undefined || !refusals.every((refusal) => refusal?.status === first.status)) {
    return refuse('handler_failed', { detail: FAILED });
  }
  const { status, detail } = first;
  if (causes.every(isGuardRefusal)) return refuse('application_refused', { status, detail });
  const errors = refusals.flatMap((refusal) => refusal?.errors ?? []);
  return errors.length > 0
    ? refuse('validation_failed', { errors: [...new Set(errors)] })
    : refuse('handler_failed', { status, detail });
}

const FAILED = 'a handler of the event failed';

/** To a sender it means that the endpoint is gone, and not what a handler looked for. */
const GONE = 410;

interface HandlerRefusal {
  readonly status: number;
  readonly detail: string;
  /** The messages of validation, which is always answered 422, whatever pipe threw. */
  readonly errors: readonly string[] | undefined;
}

/** A handler may throw anything, such as an exception whose status is a string or whose getter throws: that is a plain failure. */
function readRefusal(cause: unknown): HandlerRefusal | undefined {
  try {
    if (!(cause instanceof HttpException)) return undefined;
    const status: unknown = cause.getStatus();
    // A handler that throws a success or a redirect has still failed.
    if (!Number.isInteger(status) || (status as number) < 400 || (status as number) > 599) {
      return undefined;
    }
    const errors = validationErrors(cause);
    if (errors !== undefined) return { status: 422, detail: '', errors };
    // Typed as a string, but a handler can assign any value.
    const message: unknown = cause.message;
    const harmless = status === GONE ? 500 : (status as number);
    return { status: harmless, detail: String(message), errors: undefined };
  } catch {
    return undefined;
  }
}

/** A guard or interceptor of the application threw it before the handler began. */
function answerToForeignRefusal(exception: HttpException): WebhookAnswer {
  const answer = answerToFailedHandler(exception);
  if (answer.situation === 'validation_failed') return answer;
  const { status, problem } = answer;
  return refuse('application_refused', { status, detail: problem?.detail ?? FAILED });
}

/** The messages of a ValidationPipe, which answers 400 or 422. */
function validationErrors(exception: HttpException): readonly string[] | undefined {
  if (![400, 422].includes(exception.getStatus())) return undefined;
  const body = exception.getResponse();
  const messages = typeof body === 'object' ? (body as { message?: unknown }).message : undefined;
  if (!Array.isArray(messages)) return undefined;
  // A custom exceptionFactory may return ValidationErrors, which contain values: they are not sent.
  return messages.map((one: unknown) => (typeof one === 'string' ? one : 'failed validation'));
}

/**
 * A refused webhook, as an exception of Nest. Status and body are those of the answer table. Also a sender's challenge, with status
 * 200 and the answer as its body.
 */
export class WebhookException extends HttpException {
  /** The stable code of the answer table; `undefined` for a duplicate or a challenge, which are acknowledged. */
  readonly code: string | undefined;

  constructor(
    /** @internal */
    readonly answer: WebhookAnswer,
  ) {
    super({ ...answer.problem, ...answer.json }, answer.status);
    this.code = answer.problem?.code;
    this.message = answer.problem?.detail ?? WEBHOOK_ANSWERS[answer.situation].title;
  }

  /** The exception for any error; see {@link answerTo}. */
  static from(error: unknown, takesTokens?: boolean): WebhookException {
    return error instanceof WebhookException
      ? error
      : new WebhookException(answerTo(error, takesTokens));
  }
}
