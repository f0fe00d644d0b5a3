import { isWebhookError } from '../errors/webhook.error.js';
import type { ConsoleErrorCode, ConsoleProblem } from './console-api.js';

/** Status and title by code; a code of the library that is missing here is an internal error. */
export const ANSWERS = {
  /** A query parameter or the body is wrong. */
  invalid_option: [400, 'The request is malformed'],
  /** The event is not defined, or has no example to send. */
  unknown_event: [400, 'No such event'],
  /** Portal: exchange a link first, or ask for a new one. */
  session_required: [401, 'A session is required'],
  /** Portal: the token of the link is wrong, or has expired. */
  link_invalid: [401, 'The link is not valid'],
  missing_capability: [403, 'Not allowed'],
  /** Without a guard, see `requireLoopback()`. */
  host_not_allowed: [403, 'The console answers this machine only'],
  cross_site_request: [403, 'The request came from another site'],
  wrong_tenant: [403, 'Another tenant'],
  /** Also for one that belongs to another tenant, like the next two. */
  unknown_delivery: [404, 'No such delivery'],
  unknown_endpoint: [404, 'No such endpoint'],
  unknown_entry: [404, 'No such entry'],
  unknown_route: [404, 'No such page'],
  /** The application has no such part; see the session's `features`. */
  unavailable: [404, 'Not available in this application'],
  endpoint_exists: [409, 'The endpoint already exists'],
  endpoint_changed: [409, 'The endpoint was changed'],
  /** For example, a configured endpoint is changed in the configuration only. */
  unsupported_option: [409, 'Not possible'],
  not_retryable: [409, 'Not retryable'],
  /** One recovery of an endpoint runs at a time. */
  recovery_running: [409, 'A recovery is running'],
  /** The queue has dropped the payload before the delivery. */
  payload_dropped: [410, 'The payload was dropped'],
  /** The egress guard refuses the URL of an endpoint. */
  destination_blocked: [422, 'The URL is not allowed'],
  limit_reached: [429, 'A limit is reached'],
  /** With `Retry-After`. */
  too_many_requests: [429, 'Too many calls'],
  too_many_streams: [503, 'Too many open streams'],
  store_unavailable: [503, 'A store is unavailable'],
  store_full: [503, 'A store is full'],
  schema_behind: [503, 'A store is not migrated'],
} as const satisfies Readonly<Record<string, readonly [status: number, title: string]>>;

const INTERNAL = [500, 'An internal error occurred'] as const;

/** Ends a request with a problem. */
export class ConsoleError extends Error {
  constructor(
    readonly code: ConsoleErrorCode,
    message: string,
    /** Seconds until the call may succeed. */
    readonly retryAfter?: number,
  ) {
    super(message);
  }
}

/** @returns `isBug`: the error is none that a request can cause, and should be logged */
export function problemOf(error: unknown): {
  readonly problem: ConsoleProblem;
  readonly isBug: boolean;
} {
  if (!(error instanceof ConsoleError) && !isWebhookError(error)) {
    return { problem: problem('internal_error'), isBug: true };
  }
  // A missing publisher or inbox.
  const code = error.code === 'invalid_configuration' ? 'unavailable' : error.code;
  if (!Object.hasOwn(ANSWERS, code)) return { problem: problem('internal_error'), isBug: true };
  // The message of a store names its server.
  const detail = ANSWERS[code as keyof typeof ANSWERS][0] === 503 ? undefined : error.message;
  const errors = (error as { problems?: ConsoleProblem['errors'] }).problems;
  return { problem: problem(code, detail, errors), isBug: false };
}

function problem(code: string, detail?: string, errors?: ConsoleProblem['errors']): ConsoleProblem {
  const [status, title] = ANSWERS[code as keyof typeof ANSWERS] ?? INTERNAL;
  return {
    type: 'about:blank',
    title,
    status,
    detail: detail ?? `${title}.`,
    code,
    ...(errors !== undefined && { errors }),
  };
}
