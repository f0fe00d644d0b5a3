import type { IncomingMessage, ServerResponse } from 'node:http';
import { HttpException } from '@nestjs/common';
import { isWebhookError, type WebhookError } from '../errors/webhook.error.js';
import {
  type BearerChallenge,
  WEBHOOK_ANSWERS,
  type WebhookAnswerRow,
  type WebhookSituation,
} from '../request/webhook-answers.js';
import { hasAmbiguousLength } from './node-request.js';

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
  readonly code?: string;
  /** One message per failed constraint. */
  readonly errors?: readonly string[];
}

/** The answer to a request, made from the answer table and independent of the adapter. */
export interface WebhookAnswer {
  readonly situation: WebhookSituation;
  readonly status: number;
  readonly headers: Readonly<Record<string, string>>;
  /** Absent on success. The code is in the headers too, since an answer to HEAD has no body. */
  readonly problem?: WebhookProblem;
}

const REALM = 'Bearer realm="webhooks"';

/** A cached answer would acknowledge an event that never arrived. */
const NO_STORE = { 'Cache-Control': 'no-store' } as const;

const PROCESSED = acknowledgement('processed');
const QUEUED = acknowledgement('queued');
const DUPLICATE = acknowledgement('duplicate');

/** The answer to an event that was handled now or before. */
export function acknowledge(duplicate: boolean): WebhookAnswer {
  return duplicate ? DUPLICATE : PROCESSED;
}

/** The answer to an event that was queued. */
export function acknowledgeQueued(): WebhookAnswer {
  return QUEUED;
}

/** The answer to any error. */
function answerTo(error: unknown): WebhookAnswer {
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
    ...(row.code === undefined ? {} : { code: row.code }),
    ...(more.errors === undefined ? {} : { errors: more.errors }),
  };
  return { situation, status, headers, problem };
}

function acknowledgement(situation: 'processed' | 'queued' | 'duplicate'): WebhookAnswer {
  const row: WebhookAnswerRow = WEBHOOK_ANSWERS[situation];
  return { situation, status: row.status, headers: { ...NO_STORE, ...row.headers } };
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
  if (causes.every(isGuardRefusal)) return refuseByApplication(status, detail);
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
    return { status: status as number, detail: String(message), errors };
  } catch {
    return undefined;
  }
}

/** A guard or interceptor of the application threw it before the handler began. */
function answerToForeignRefusal(exception: HttpException): WebhookAnswer {
  const answer = answerToFailedHandler(exception);
  if (answer.situation === 'validation_failed') return answer;
  const { status, problem } = answer;
  return refuseByApplication(status, problem?.detail ?? FAILED);
}

/** Refusals of the application keep their status and get none of this package's codes. */
export function refuseByApplication(status: number, detail?: string): WebhookAnswer {
  return refuse('application_refused', { status, detail });
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

/** A refused webhook, as an exception of Nest. Status and body are those of the answer table. */
export class WebhookException extends HttpException {
  /** The stable code of the answer table; `undefined` for a duplicate, which is acknowledged. */
  readonly code: string | undefined;

  constructor(
    /** @hidden */
    readonly answer: WebhookAnswer,
  ) {
    super({ ...answer.problem }, answer.status);
    this.code = answer.problem?.code;
    this.message = answer.problem?.detail ?? 'the event was handled before';
  }

  /** The exception for any error. */
  static from(error: unknown): WebhookException {
    return error instanceof WebhookException ? error : new WebhookException(answerTo(error));
  }

  /**
   * The answer to any error.
   *
   * @hidden
   */
  static answerTo(error: unknown): WebhookAnswer {
    return error instanceof WebhookException ? error.answer : answerTo(error);
  }
}

/** A refused body of up to so many bytes is read and dropped, to keep the connection open (benchmark `forged`). */
const READ_AWAY = 65_536;

/**
 * Whether the answer carries `Connection: close`: at shutdown, and if unread bytes of the body would be parsed as the next request.
 * HTTP/2 has no such header.
 */
export function closesConnection(request: IncomingMessage, isClosing: boolean): boolean {
  if (request.httpVersionMajor !== 1) return false;
  return isClosing || hasAmbiguousLength(request) || !(request.complete || isReadAway(request));
}

/**
 * Whether Node drains the body after the answer, if there is one. It drains any body that was not started; this allows it for a short
 * one with a known length. A sender that expects a 100 may not send its body at all.
 */
function isReadAway(request: IncomingMessage): boolean {
  const { 'content-length': length, 'transfer-encoding': coding, expect } = request.headers;
  if (coding !== undefined || expect !== undefined) return false;
  // Without either header there is no body (RFC 9112, section 6.3).
  if (length === undefined) return true;
  return !request.readableDidRead && Number(length) <= READ_AWAY;
}

/** Writes an answer to Node's response directly, past every layer that could change it. */
export function sendAnswer(
  request: IncomingMessage,
  response: ServerResponse,
  answer: WebhookAnswer,
  options: { readonly close: boolean },
): void {
  if (response.headersSent || response.destroyed) return;
  if (closesConnection(request, options.close)) response.setHeader('Connection', 'close');
  // All at once: headers that are set one by one go through a table of the response (benchmark `receive`).
  if (answer.problem === undefined || request.method === 'HEAD') {
    response.writeHead(answer.status, answer.headers).end();
    return;
  }
  // A string is written together with the headers; a Buffer would take a second write (benchmark `forged`).
  const body = JSON.stringify(answer.problem);
  const described = {
    'Content-Type': 'application/problem+json',
    'Content-Length': Buffer.byteLength(body),
  };
  response.writeHead(answer.status, { ...answer.headers, ...described }).end(body);
}
