import { describe, expect, it } from '@jest/globals';
import * as fc from 'fast-check';
import { parseRetryAfter } from '../../lib/clock/retry-after.js';

const now = Date.UTC(2026, 0, 1, 12, 0, 0);
const DAY = 24 * 3_600_000;

describe('parseRetryAfter', () => {
  it.each<[string, string | undefined, number | undefined]>([
    ['seconds', '120', 120_000],
    ['zero', '0', 0],
    ['seconds with space around them', ' 7 ', 7_000],
    ['a leading zero', '010', 10_000],
    ['more than a day', '90000', DAY],
    ['twenty digits', '99999999999999999999', DAY],
    ['a date', 'Thu, 01 Jan 2026 12:00:30 GMT', 30_000],
    ['a past date', 'Thu, 01 Jan 2026 11:00:00 GMT', 0],
    ['a date in the far future', 'Fri, 01 Jan 2027 12:00:00 GMT', DAY],
    ['a date in the format of RFC 850', 'Thursday, 01-Jan-26 12:01:00 GMT', 60_000],
    ['a date in the format of asctime', 'Thu Jan  1 12:02:00 2026', 120_000],
    ['nothing', undefined, undefined],
    ['an empty string', '', undefined],
    ['a negative number', '-5', undefined],
    ['a fraction', '1.5', undefined],
    ['an exponent', '1e3', undefined],
    ['hexadecimal', '0x10', undefined],
    ['a unit', '5s', undefined],
    ['a list', '5, 10', undefined],
    ['an ISO date', '2026-01-01T12:00:30Z', undefined],
    ['a date in another zone', 'Thu, 01 Jan 2026 12:00:30 CET', undefined],
    ['an invalid date', 'Thu, 99 Jan 2026 12:00:30 GMT', undefined],
    ['a date that only Date.parse accepts', 'Mon 5', undefined],
    ['nonsense', 'soon', undefined],
    ['a thousand digits', '1'.repeat(1_000), undefined],
  ])('parses %s', (_, text, expected) => {
    expect(parseRetryAfter(text, now)).toBe(expected);
  });

  it('returns a wait of 0 to 24 h only, whatever the header', () => {
    fc.assert(
      fc.property(
        fc.oneof(fc.string(), fc.integer().map(String), fc.date().map(String)),
        (text) => {
          const wait = parseRetryAfter(text, now);
          expect(wait === undefined || (wait >= 0 && wait <= DAY)).toBe(true);
        },
      ),
    );
  });
});
