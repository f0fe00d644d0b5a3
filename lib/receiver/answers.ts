import { HttpException } from '@nestjs/common';
import { isWebhookError, type WebhookError } from '../errors/webhook.error.js';
import {
  type BearerChallenge,
  WEBHOOK_ANSWERS,
  type WebhookAnswerRow,
  type WebhookSituation,
} from '../request/webhook-answers.js';
import type { SenderChallenge, WebhookScheme } from '../request/webhook-scheme.js';

/** Wraps what a handler threw, so that an error of this package thrown by a handler is not answered as a refused token. */
export class HandlerFailure {
  constructor(readonly cause: unknown) {}
}

/** Exceptions of guards that are bound to handlers. */
const guardRefusals = new WeakSet<HttpException>();

/** Marks an exception as thrown by a guard: its handler did not run, so it did not fail either. */
export function markGuardRefusal(error: unknown): void {
  if (error instanceof HttpException) guardRefusals.add(error);
}

/** Whether a guard of the application threw this, and no handler. */
export function isGuardRefusal(error: unknown): boolean {
  return error instanceof HttpException && guardRefusals.has(error);
}

/** Body of a refusal, RFC 9457. */
interface WebhookProblem {
  readonly type: string;
  readonly title: string;
  readonly status: number;
  readonly detail: string;
  readonly code?: string | undefined;
  /** One message per failed constraint. */
  readonly errors?: readonly string[] | undefined;
}

/** The answer to a request, made from the answer table and independent of the adapter. */
export interface WebhookAnswer {
  readonly situation: WebhookSituation;
  readonly status: number;
  readonly headers: Readonly<Record<string, string>>;
  /** Absent on success. The code is in the headers too, since an answer to HEAD has no body. */
  readonly problem?: WebhookProblem;
  /** JSON that is no problem: the answer to a sender's challenge, or an answer in a sender's own form. */
  readonly json?: Readonly<Record<string, string>> | undefined;
  /** Plain text: the answer to a sender's challenge. */
  readonly text?: string | undefined;
}

const REALM = 'Bearer realm="webhooks"';

/** A cached answer would acknowledge an event that never arrived. */
const NO_STORE = { 'Cache-Control': 'no-store' } as const;

/** The answer to an event that was handled, queued, or handled before. */
export function acknowledge(situation: 'processed' | 'queued' | 'duplicate'): WebhookAnswer {
  const row: WebhookAnswerRow = WEBHOOK_ANSWERS[situation];
  return { situation, status: row.status, headers: { ...NO_STORE, ...row.headers } };
}

/** The answer to a sender's challenge. */
export function answerChallenge(challenge: SenderChallenge): WebhookAnswer {
  const { challengeAnswer: json, challengeText: text, challengeHeaders } = challenge;
  const { status } = WEBHOOK_ANSWERS.challenge;
  const headers = { ...NO_STORE, ...challengeHeaders };
  return { situation: 'challenge', status, headers, json, text };
}

/** Puts an answer into the form that the sender's standard names, if it names one. */
export function inFormOf({ answer: form }: WebhookScheme, answer: WebhookAnswer): WebhookAnswer {
  const { situation, status, headers, problem } = answer;
  const own = form?.({ status, code: problem?.code, detail: problem?.detail });
  if (own === undefined) return answer;
  return { situation, status: own.status, headers: { ...headers, ...own.headers }, json: own.body };
}

/**
 * The answer to a request with several events: the one with the highest status, so that a sender repeats the request if one event
 * failed. Of events that were handled before, only if all were.
 */
export function worstOf(answers: readonly WebhookAnswer[]): WebhookAnswer {
  const rank = ({ situation, status }: WebhookAnswer): number =>
    situation === 'duplicate' ? 0 : status;
  const [first = acknowledge('processed'), ...others] = answers;
  return others.reduce((worst, one) => (rank(one) > rank(worst) ? one : worst), first);
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
  if (error instanceof HandlerFailure) return answerToFailedHandler(error.cause);
  if (error instanceof HttpException) return answerToForeignRefusal(error);
  if (isWebhookError(error)) {
    const situation = situationOf(error.code);
    // A sender must not learn where the store is or how full it is.
    const detail = situation === 'store_unavailable' ? undefined : error.message;
    if (situation !== undefined) return refuse(situation, { detail, allow: allowOf(error) });
  }
  return refuse('handler_failed');
}

/** The answer of a table row. */
export function refuse(
  situation: WebhookSituation,
  more: {
    readonly detail?: string | undefined;
    readonly status?: number | undefined;
    readonly errors?: readonly string[] | undefined;
    /** Methods in place of the row's. */
    readonly allow?: string | undefined;
  } = {},
): WebhookAnswer {
  const row: WebhookAnswerRow = WEBHOOK_ANSWERS[situation];
  const status = more.status ?? row.status;
  const detail = more.detail ?? row.title;
  const headers: Record<string, string> = { ...NO_STORE, ...row.headers };
  if (more.allow !== undefined) headers['Allow'] = more.allow;
  if (row.code !== undefined) headers['Webhook-Error'] = row.code;
  if (row.challenge !== undefined) {
    headers['WWW-Authenticate'] = challenge(row.challenge, detail, row.code);
  }
  const problem = {
    type: 'about:blank',
    title: row.title,
    status,
    detail,
    code: row.code,
    errors: more.errors,
  };
  return { situation, status, headers, problem };
}

function situationOf(code: string): WebhookSituation | undefined {
  if (code === 'store_full' || code === 'schema_behind') return 'store_unavailable';
  return Object.hasOwn(WEBHOOK_ANSWERS, code) ? (code as WebhookSituation) : undefined;
}

/** A wire format may allow one method only. */
function allowOf(error: WebhookError): string | undefined {
  return (error as { methods?: readonly string[] }).methods?.join(', ');
}

function challenge(kind: BearerChallenge, detail: string, code: string | undefined): string {
  if (kind === 'plain') return REALM;
  // RFC 6750 allows printable ASCII without quotes and backslashes.
  const description = detail.replace(/[^\x20-\x21\x23-\x5b\x5d-\x7e]/g, "'");
  return `${REALM}, error="${kind}", error_description="${description}", code="${code}"`;
}

function answerToFailedHandler(cause: unknown): WebhookAnswer {
  const causes: readonly unknown[] = cause instanceof AggregateError ? cause.errors : [cause];
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

/** An HttpException of a handler. */
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
    return { status: status as number, detail: String(message), errors: undefined };
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
    /** @hidden */
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
