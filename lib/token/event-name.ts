import {
  DEFAULT_PROFILE,
  MAX_EVENT_NAME_LENGTH,
  type WebhookProfile,
} from './webhook-token.constants.js';

const SEGMENTS = /^[A-Za-z0-9_-]+(?:\.[A-Za-z0-9_-]+)*$/;
const PATTERN_SEGMENT = /^(?:[A-Za-z0-9_-]+|\*{1,2})$/;

const SEGMENT_RULE = `letters, digits, "_" and "-", joined by dots, at most ${MAX_EVENT_NAME_LENGTH} characters`;

/**
 * Reports whether a value is an event name: segments joined by dots, such as `order.created`, case-sensitive.
 *
 * @param profile - the wire format; `webhook-token` (the default) requires at least two segments, the drafts one
 */
export function isEventName(
  name: unknown,
  profile: WebhookProfile = DEFAULT_PROFILE,
): name is string {
  return (
    typeof name === 'string' &&
    name.length <= MAX_EVENT_NAME_LENGTH &&
    SEGMENTS.test(name) &&
    (profile !== 'webhook-token' || name.includes('.'))
  );
}

export function eventNameRule(profile: WebhookProfile = DEFAULT_PROFILE): string {
  return `${profile === 'webhook-token' ? 'two' : 'one'} or more segments of ${SEGMENT_RULE}`;
}

/**
 * Reports what is wrong with a pattern: an event name in which `*` matches one segment and `**` any number of them,
 * none included.
 *
 * @returns the problem and its remedy, or `undefined` for a valid pattern
 */
export function eventPatternProblem(pattern: unknown): string | undefined {
  if (typeof pattern !== 'string' || pattern === '') {
    return 'an event pattern must be a non-empty string';
  }
  if (pattern.length > MAX_EVENT_NAME_LENGTH) {
    return `an event pattern has at most ${MAX_EVENT_NAME_LENGTH} characters`;
  }
  // It would match names of one segment only, which is never what its author meant.
  if (pattern === '*') return '"*" matches one segment: write "**" for every event';
  if (!pattern.split('.').every((segment) => PATTERN_SEGMENT.test(segment))) {
    return `"${pattern}" is not an event pattern: write segments of ${SEGMENT_RULE}, with "*" for one whole segment or "**" for any number`;
  }
  return undefined;
}

/** Reports whether an event name matches a pattern; both must be valid. */
export function matchesEvent(pattern: string, event: string): boolean {
  if (!pattern.includes('*')) return pattern === event;
  return segmentsMatch(pattern.split('.'), event.split('.'));
}

function segmentsMatch(pattern: readonly string[], event: readonly string[]): boolean {
  // Two-pointer wildcard matching. It backtracks to the last `**` only, so the worst case is the product of the two
  // lengths, and each is at most 128 characters.
  let p = 0;
  let e = 0;
  let resumePattern = -1;
  let resumeEvent = 0;
  while (e < event.length) {
    const wanted = pattern[p];
    if (wanted === '**') {
      resumePattern = ++p;
      resumeEvent = e;
    } else if (wanted !== undefined && (wanted === '*' || wanted === event[e])) {
      p++;
      e++;
    } else if (resumePattern >= 0) {
      p = resumePattern;
      e = ++resumeEvent;
    } else {
      return false;
    }
  }
  while (pattern[p] === '**') p++;
  return p === pattern.length;
}
