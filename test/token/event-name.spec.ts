import { describe, expect, it } from '@jest/globals';
import * as fc from 'fast-check';
import { eventPatternProblem, isEventName, matchesEvent } from '../../lib/token/event-name.js';
import { matchesNaively } from './naive-event-match.js';

const LETTERS = new Set('ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789_-');

/** The grammar of event names, a character at a time. */
function isNameByCharacter(text: string): boolean {
  let segments = 1;
  let lengthOfSegment = 0;
  for (const character of text) {
    if (character === '.') {
      if (lengthOfSegment === 0) return false;
      segments++;
      lengthOfSegment = 0;
    } else if (LETTERS.has(character)) {
      lengthOfSegment++;
    } else {
      return false;
    }
  }
  return lengthOfSegment > 0 && segments >= 2 && text.length <= 128;
}

const segment = fc.constantFrom('a', 'b', 'c', 'order', 'a-b', 'A');
const eventName = fc.array(segment, { minLength: 2, maxLength: 6 }).map((parts) => parts.join('.'));
const pattern = fc
  .array(fc.oneof(segment, fc.constantFrom('*', '**', '**')), { minLength: 1, maxLength: 6 })
  .map((parts) => parts.join('.'))
  .filter((text) => eventPatternProblem(text) === undefined);

describe('isEventName', () => {
  it('agrees with a check by character', () => {
    const nearly = fc.string({
      unit: fc.constantFrom('a', 'Z', '0', '_', '-', '.', '.', ' ', '*', 'é', '\n', '\u0000'),
      maxLength: 12,
    });
    fc.assert(
      fc.property(fc.oneof(nearly, fc.string(), eventName), (text) => {
        expect(isEventName(text)).toBe(isNameByCharacter(text));
      }),
      { numRuns: 2_000 },
    );
  });

  it.each([
    ['swt-draft-00', true],
    ['swt-draft-02', true],
    ['webhook-token', false],
  ] as const)('in %s may be one word: %s', (profile, verdict) => {
    expect(isEventName('ping', profile)).toBe(verdict);
    expect(isEventName('order.created', profile)).toBe(true);
    for (const name of ['', '.', 'ping.', '.ping', 'a b', 'a..b']) {
      expect(isEventName(name, profile)).toBe(false);
    }
  });

  it.each([
    ['128 characters', `a.${'b'.repeat(126)}`, true],
    ['129 characters', `a.${'b'.repeat(127)}`, false],
    ['a number', 1, false],
    ['null', null, false],
    ['a list', ['order.created'], false],
    ['an object that converts to a name', { toString: () => 'order.created' }, false],
  ])('judges %s', (_, name, verdict) => {
    expect(isEventName(name)).toBe(verdict);
  });
});

describe('matchesEvent', () => {
  it('agrees with the naive definition', () => {
    fc.assert(
      fc.property(pattern, eventName, (wanted, event) => {
        expect(matchesEvent(wanted, event)).toBe(
          matchesNaively(wanted.split('.'), event.split('.')),
        );
      }),
      { numRuns: 5_000 },
    );
  });

  it.each([
    ['order.created', 'order.created', true],
    ['order.created', 'Order.created', false],
    ['order.*', 'order.created', true],
    ['order.*', 'order.item.created', false],
    ['order.**', 'order.item.created', true],
    ['order.**.created', 'order.created', true],
    ['**.created', 'order.item.created', true],
    ['**', 'order.created', true],
    ['*.*', 'order.item.created', false],
    ['**.*.**', 'order.created', true],
    ['order.created.**', 'order.created', true],
  ])('%s on %s: %s', (wanted, event, verdict) => {
    expect(matchesEvent(wanted, event)).toBe(verdict);
  });
});

describe('eventPatternProblem', () => {
  it('accepts every event name', () => {
    fc.assert(fc.property(eventName, (name) => eventPatternProblem(name) === undefined));
  });

  it.each([
    ['', 'non-empty'],
    [1, 'non-empty'],
    ['a'.repeat(129), '128'],
    ['*', '"**" for every event'],
    ['order.', 'is not an event pattern'],
    ['order.cre*', 'one whole segment'],
    ['order.***', 'is not an event pattern'],
    ['order created', 'is not an event pattern'],
  ])('explains what is wrong with %p', (text, remedy) => {
    expect(eventPatternProblem(text)).toContain(remedy);
  });
});
