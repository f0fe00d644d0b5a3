import { MAX_EVENT_NAME_LENGTH } from './webhook-token.constants.js';

const EVENT_NAME = /^[A-Za-z0-9_-]+(?:\.[A-Za-z0-9_-]+)+$/;
const PATTERN_SEGMENT = /^(?:[A-Za-z0-9_-]+|\*{1,2})$/;

/** The grammar in words, for messages. */
export const EVENT_NAME_GRAMMAR =
  'two or more segments of letters, digits, "_" and "-", joined by dots, at most 128 characters';

/** Tells whether a text is an event's name: `<entity>.<action>`, case-sensitive. */
export function isEventName(name: unknown): name is string {
  return typeof name === 'string' && name.length <= MAX_EVENT_NAME_LENGTH && EVENT_NAME.test(name);
}

/**
 * Says what is wrong with a pattern: an event's name in which `*` stands for one segment and `**` for
 * any number of them, none included.
 *
 * @returns the fault and its remedy, or `undefined` for a pattern that can match
 */
export function eventPatternFault(pattern: unknown): string | undefined {
  if (typeof pattern !== 'string' || pattern === '') return 'an event pattern is a non-empty text';
  if (pattern.length > MAX_EVENT_NAME_LENGTH) {
    return `an event pattern has at most ${MAX_EVENT_NAME_LENGTH} characters`;
  }
  const segments = pattern.split('.');
  if (!segments.every((segment) => PATTERN_SEGMENT.test(segment))) {
    return `"${pattern}" is no event pattern: write ${EVENT_NAME_GRAMMAR}, with "*" for one whole segment or "**" for any number`;
  }
  if (segments.length === 1 && segments[0] !== '**') {
    return `"${pattern}" can never match, an event has at least two segments: write ${
      pattern === '*' ? '"**" for every event' : `"${pattern}.*" or "${pattern}.**"`
    }`;
  }
  return undefined;
}

/** Tells whether an event's name matches a pattern; both are taken to be well-formed. */
export function matchesEvent(pattern: string, event: string): boolean {
  if (!pattern.includes('*')) return pattern === event;
  return segmentsMatch(pattern.split('.'), event.split('.'));
}

function segmentsMatch(pattern: readonly string[], event: readonly string[]): boolean {
  // The classic two-pointer wildcard walk. It only ever goes back to the last `**`, so that the worst pattern
  // costs the product of the two lengths, which are those of 128 characters at most.
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
