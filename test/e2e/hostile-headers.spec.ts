import { afterAll, beforeAll, describe, expect, it } from '@jest/globals';
import { adapters } from '../fixtures/adapters.js';
import { HostileTarget, outcome, requestHead, WEBHOOK_PATHS } from '../fixtures/hostile-target.js';
import { signed } from '../fixtures/receiver-app.js';

type Outcome = [status: number, code: string | undefined];

const MALFORMED: Outcome = [400, 'malformed_authorization'];
const MISSING: Outcome = [401, 'missing_token'];
const INVALID: Outcome = [401, 'invalid_token'];
const GOOD: Outcome = [204, undefined];
/** Node's parser rejects the bytes before the application sees a request. */
const REFUSED_BY_NODE: Outcome = [400, undefined];

const cases: [name: string, headers: (token: string) => string[], expected: Outcome][] = [
  ['none', () => [], MISSING],
  ['an empty value', () => ['Authorization:'], MISSING],
  ['a scheme alone', () => ['Authorization: Bearer'], MALFORMED],
  ['another scheme', (t) => [`Authorization: Basic ${t}`], MISSING],
  ['a scheme with the same prefix', (t) => [`Authorization: Bearer2 ${t}`], MISSING],
  ['a scheme in lower case', (t) => [`Authorization: bearer ${t}`], GOOD],
  ['white space around the value', (t) => [`Authorization: \t Bearer ${t} \t`], GOOD],
  [
    '10 kB of spaces before the token',
    (t) => [`Authorization: Bearer ${' '.repeat(1e4)}${t}`],
    GOOD,
  ],
  ['10 kB of spaces and no token', () => [`Authorization: Bearer ${' '.repeat(1e4)}`], MALFORMED],
  ['a tab for the space', (t) => [`Authorization: Bearer\t${t}`], MISSING],
  ['two lines', (t) => [`Authorization: Bearer ${t}`, `Authorization: Bearer ${t}`], MALFORMED],
  [
    'two lines in different case',
    (t) => [`authorization: Bearer ${t}`, `AUTHORIZATION: x`],
    MALFORMED,
  ],
  ['an empty line first', (t) => ['Authorization:', `Authorization: Bearer ${t}`], MALFORMED],
  ['two schemes', (t) => ['Authorization: Basic x', `Authorization: Bearer ${t}`], MALFORMED],
  [
    'two tokens separated by a comma',
    (t) => [`Authorization: Bearer ${t}, Bearer ${t}`],
    MALFORMED,
  ],
  ['a comma without a space', (t) => [`Authorization: Bearer ${t},Bearer ${t}`], MALFORMED],
  ['another scheme before the token', (t) => [`Authorization: Basic x, Bearer ${t}`], MALFORMED],
  ['two tokens', (t) => [`Authorization: Bearer ${t} ${t}`], MALFORMED],
  ['a quoted token', (t) => [`Authorization: Bearer "${t}"`], MALFORMED],
  ['padding after the token', (t) => [`Authorization: Bearer ${t}=`], [401, 'bad_signature']],
  ['four parts', (t) => [`Authorization: Bearer ${t}.x`], INVALID],
  ['dots', () => ['Authorization: Bearer ..'], INVALID],
  ['a non-ASCII byte', (t) => [`Authorization: Bearer ${t}\u00e9`], MALFORMED],
  ['a folded line', (t) => ['Authorization: Bearer', ` ${t}`], REFUSED_BY_NODE],
  ['a NUL', (t) => [`Authorization: Bearer ${t}\0`], REFUSED_BY_NODE],
  ['a bare CR', (t) => [`Authorization: Bearer ${t}\rX: y`], REFUSED_BY_NODE],
  ['a space before the colon', (t) => [`Authorization : Bearer ${t}`], REFUSED_BY_NODE],
];

/** The header is read by the same code everywhere, so the other combinations run one case of each kind. */
const SAMPLE = cases.filter(([name]) =>
  ['none', 'white space around the value', 'two lines', 'a folded line'].includes(name),
);

async function expectAnswer(
  target: HostileTarget,
  way: (typeof WEBHOOK_PATHS)[number],
  method: string,
  [, headers, expected]: (typeof cases)[number],
): Promise<void> {
  await target.survives(way, expected === GOOD ? 1 : 0, async (connection) => {
    const head = requestHead(method, way, headers(signed()));
    connection.write(Buffer.from(head, 'latin1'));

    expect(outcome(await connection.answer(method))).toEqual(expected);
  });
}

describe('the Authorization header of a hostile sender', () => {
  let target: HostileTarget;

  beforeAll(async () => (target = await HostileTarget.start(adapters[0]![1]())));
  afterAll(() => target.close());

  it.each(cases)('%s', async (...one) => {
    await expectAnswer(target, WEBHOOK_PATHS[0], 'POST', one);
  });
});

describe.each(adapters)('headers of a hostile sender on %s', (_, createAdapter) => {
  let target: HostileTarget;

  beforeAll(async () => (target = await HostileTarget.start(createAdapter())));
  afterAll(() => target.close());

  describe.each(WEBHOOK_PATHS)('at %s', (way) => {
    describe.each(['HEAD', 'POST'])('%s', (method) => {
      it.each(SAMPLE)('with an Authorization header: %s', async (...one) => {
        await expectAnswer(target, way, method, one);
      });

      it('with headers above the limit of the server', async () => {
        await target.survives(way, 0, async (connection) => {
          connection.write(requestHead(method, way, [`X: ${'x'.repeat(20_000)}`]));

          expect(outcome(await connection.answer(method))).toEqual([431, undefined]);
        });
      });
    });
  });
});
