import { ALL_ACCEPTED, all, answered, refusedWith, unanswered, REFUSED } from '../expectations.js';
import { BODY } from '../probe.context.js';
import type { Expectation, Probe, ProbeRequest } from '../probe.interface.js';
import { ADVISED, INLINE, probesOf, TOLERANT } from './define-probe.js';

const { accepted, refused } = probesOf('http');

const METHODS = 'A webhook is sent by the methods of the format, and by no other.';
const ONE = 'Two credentials, and every server on the way picks another one.';

const has = (name: string, what: (value: string) => boolean): Expectation =>
  answered(({ headers }) =>
    what(headers.get(name) ?? '') ? undefined : `the header ${name} is missing or wrong`,
  );

const NOT_STORED = has('cache-control', (value) => /\bno-store\b/i.test(value));
const CHALLENGED = has('www-authenticate', (value) => /\bbearer\b/i.test(value));

/** The receiver answered, and either closed the connection or understands what comes next on it. */
const IN_STEP: Expectation = ([first, second]) => {
  if (typeof first === 'string') return `HEAD with a length: ${unanswered(first)}`;
  if (second === 'closed') return undefined;
  if (second === 'timeout') return 'it took the next request for a body, and waits for more';
  return second!.status >= 200 && second!.status < 300
    ? undefined
    : `the next request on the connection was answered ${second!.status}`;
};

const authorized = (request: ProbeRequest, ...authorization: string[]): ProbeRequest => ({
  ...request,
  authorization,
});

/** What stands around the token. */
export const HTTP_PROBES: readonly Probe[] = [
  ...['GET', 'PUT', 'PATCH', 'DELETE'].map((method) =>
    refused(`method-${method.toLowerCase()}`, `${method} with a good token`, METHODS, { method }),
  ),
  refused('method-head', 'HEAD', METHODS, (c) => c.raw(), { profiles: ['swt-draft-02'] }),
  refused(
    'status-405',
    'GET is answered 405 with Allow',
    'RFC 9110, section 15.5.6.',
    { method: 'GET' },
    {
      ...ADVISED,
      expect: all(
        refusedWith(405),
        has('allow', (value) => /POST/.test(value)),
      ),
    },
  ),
  refused('no-authorization', 'no Authorization', 'Nobody is trusted without a token.', (c) =>
    authorized(c.request()),
  ),
  refused('other-scheme', 'Basic', 'The scheme is Bearer.', (c) =>
    authorized(c.request(), 'Basic dXNlcjpwYXNz'),
  ),
  refused('no-credentials', 'Bearer without a token', 'Nobody is trusted without a token.', (c) =>
    authorized(c.request(), 'Bearer'),
  ),
  refused('no-scheme', 'the token without a scheme', 'The scheme is Bearer.', (c) => {
    const request = c.request();
    return authorized(request, request.authorization[0]!.slice('Bearer '.length));
  }),
  refused(
    'two-headers',
    'two Authorization headers',
    ONE,
    (c) => {
      const request = c.request();
      return authorized(request, request.authorization[0]!, 'Bearer x.y.z');
    },
    TOLERANT,
  ),
  refused(
    'two-headers-last',
    'two Authorization headers, the good one last',
    ONE,
    (c) => {
      const request = c.request();
      return authorized(request, 'Bearer x.y.z', request.authorization[0]!);
    },
    TOLERANT,
  ),
  refused('joined-headers', 'two credentials behind a comma', ONE, (c) => {
    const request = c.request();
    return authorized(request, `${request.authorization[0]}, Bearer x.y.z`);
  }),
  refused(
    'challenge',
    '401 without a token carries WWW-Authenticate',
    'RFC 9110, section 15.5.2, and RFC 6750, section 3.',
    (c) => authorized(c.request()),
    {
      ...TOLERANT,
      expect: all(REFUSED, (outcomes, context) => {
        const last = outcomes.at(-1)!;
        return typeof last !== 'string' && last.status === 401
          ? CHALLENGED(outcomes, context)
          : undefined;
      }),
    },
  ),
  refused(
    'status-401',
    'a bad token is answered 401',
    'Senders can tell a bad token from a bad body.',
    {
      claims: { iss: 'https://nobody.invalid' },
    },
    { ...ADVISED, ...TOLERANT, expect: refusedWith(401) },
  ),
  refused(
    'status-400',
    'a bad body is answered 400',
    'Senders can tell a bad token from a bad body.',
    (c) => c.post(BODY, { body: BODY.replace('1', '2') }),
    { ...ADVISED, expect: refusedWith(400) },
  ),
  refused(
    'problem',
    'a refused POST says why',
    'application/problem+json (RFC 9457).',
    (c) => c.post(BODY, { body: BODY.replace('1', '2') }),
    {
      ...ADVISED,
      profiles: ['webhook-token'],
      expect: all(
        REFUSED,
        has('content-type', (value) => value.startsWith('application/problem+json')),
      ),
    },
  ),
  accepted(
    'no-store',
    'an accepted event is not cached',
    'A cache would answer the second HEAD by itself.',
    {},
    {
      ...ADVISED,
      expect: all(ALL_ACCEPTED, NOT_STORED),
    },
  ),
  refused(
    'no-store-refused',
    'a refusal is not cached',
    'A cache would refuse the next one by itself.',
    {
      claims: { iss: 'https://nobody.invalid' },
    },
    { ...ADVISED, expect: all(REFUSED, NOT_STORED) },
  ),
  accepted(
    'head-status',
    'HEAD is acknowledged by 202 or 204',
    'A 200 proves nothing: any GET route gives it.',
    {},
    {
      ...INLINE,
      ...ADVISED,
      expect: refusedWith(202, 204),
    },
  ),
  accepted(
    'head-with-length',
    'HEAD that declares a length, then another event',
    'A HEAD has no body: a server that waits for one takes the next request for it.',
    (c) => [{ ...c.request(), contentLength: 245 }, c.request({ sameConnection: true })],
    { ...INLINE, expect: IN_STEP },
  ),
  accepted(
    'refused-then-event',
    'a refused POST, then an event on the same connection',
    'What was left of a refused body is no request.',
    (c) => [
      { ...c.post(BODY), authorization: ['Bearer x.y.z'] },
      c.request({ sameConnection: true }),
    ],
    {
      expect: (outcomes, context) =>
        IN_STEP(outcomes, context)?.replace('HEAD with a length', 'the refused POST'),
    },
  ),
  refused(
    'large-before-read',
    '10 GB are declared, and none sent',
    'What is too large is refused before it is read.',
    (c) => ({
      ...c.post(BODY),
      body: undefined,
      contentLength: 10_000_000_000,
    }),
    ADVISED,
  ),
  refused(
    'unauthenticated-body',
    'a bad token, and a body that never comes',
    'Nobody without a key makes a receiver wait for a body.',
    (c) => ({
      ...c.post(BODY, { claims: { iss: 'https://nobody.invalid' } }),
      body: undefined,
      contentLength: 1_000,
    }),
    ADVISED,
  ),
  refused(
    'token-too-large',
    'a token of 20 kB',
    'It is refused, not worked on.',
    {
      claims: { note: 'x'.repeat(15_000) },
    },
    { ...ADVISED, ...TOLERANT },
  ),
];
