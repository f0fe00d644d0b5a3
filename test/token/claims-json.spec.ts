import { describe, expect, it } from '@jest/globals';
import * as fc from 'fast-check';
import { parseClaimsJson } from '../../lib/token/json/claims-json.js';
import { hasDuplicateMember, parseJson } from '../../lib/token/json/strict-json.js';

/** Large enough to be parsed separately. */
const LARGE = `{"text":"${'x'.repeat(2_500)}"}`;

/** The result of a verifier for the JSON. */
function conclude(text: string): unknown {
  const { value, outline } = parseClaimsJson(text);
  return { value, duplicate: hasDuplicateMember(outline, value, 'webhook') };
}

/** The same, with the JSON parsed as a whole. */
function concludeWhole(text: string): unknown {
  const value = parseJson(text);
  return { value, duplicate: hasDuplicateMember(text, value, 'webhook') };
}

describe('claims that are parsed in two parts', () => {
  it('have a short outline', () => {
    const { value, outline } = parseClaimsJson(
      `{"iss":"i","webhook":{"event":"a.b","data":${LARGE}}}`,
    );

    expect(value).toEqual({ iss: 'i', webhook: { event: 'a.b', data: JSON.parse(LARGE) } });
    expect(outline.length).toBeLessThan(100);
  });

  it.each([
    ['data last', `{"iss":"i","webhook":{"event":"a.b","data":${LARGE}}}`],
    ['data first', `{"webhook":{"data":${LARGE},"event":"a.b"},"iss":"i"}`],
    ['a hash after data', `{"webhook":{"event":"a.b","data":${LARGE},"hash":"x"}}`],
    ['data in another claim', `{"webhook":{"event":"a.b"},"more":{"data":${LARGE}}}`],
    ['data in another claim and in webhook', `{"webhook":{"data":1},"more":{"data":${LARGE}}}`],
    ['data twice', `{"webhook":{"data":{},"data":${LARGE}}}`],
    ['data twice, large first', `{"webhook":{"data":${LARGE},"data":{}}}`],
    ['data below data', `{"webhook":{"x":{"data":${LARGE}}}}`],
    ['data as an array', `{"webhook":{"data":[${LARGE}]}}`],
    ['the event twice', `{"webhook":{"event":"a.b","event":"a.b","data":${LARGE}}}`],
    [
      'the event twice, around the data',
      `{"webhook":{"event":"a.b","data":${LARGE},"event":"a.b"}}`,
    ],
    ['an object after the data', `{"webhook":{"data":${LARGE},"x":{}}}`],
    ['the issuer twice', `{"iss":"i","iss":"i","webhook":{"data":${LARGE}}}`],
    ['webhook twice', `{"webhook":{"event":"a.b"},"webhook":{"data":${LARGE}}}`],
    ['the member in a string', `{"sub":"\\"data\\":{","webhook":{"data":${LARGE}}}`],
    ['the member escaped', `{"webhook":{"\\u0064ata":{},"data":${LARGE}}}`],
    ['white space', `{"webhook":{"data": ${LARGE} } }`],
    ['no object', `[{"webhook":{"data":${LARGE}}}]`],
    ['no JSON', `{"webhook":{"data":${LARGE}}}}`],
    ['no JSON in the data', `{"webhook":{"data":{"x":${LARGE}}}`],
  ])('equal claims that are parsed as a whole: %s', (_, text) => {
    expect(conclude(text)).toEqual(concludeWhole(text));
  });

  it('equal claims that are parsed as a whole, for random claims', () => {
    const member = fc.constantFrom('data', 'event', 'webhook', 'x');
    const piece = fc.constantFrom('{', '}', '}}', '}}}', ',', LARGE, '1', '"a"');
    const text = fc
      .array(
        fc.oneof(
          piece,
          member.map((name) => `"${name}":`),
        ),
        { minLength: 3, maxLength: 14 },
      )
      .map((pieces) => pieces.join(''));
    fc.assert(
      fc.property(
        fc.oneof(
          text,
          text.map((inner) => `{"webhook":{"data":${inner}`),
        ),
        (claims) => {
          expect(conclude(claims)).toEqual(concludeWhole(claims));
        },
      ),
      { numRuns: 5_000 },
    );
  });
});
