import {
  ALL_ACCEPTED,
  all,
  answered,
  answeredWith,
  unanswered,
  REFUSED,
  ADVISED,
  DEFAULT_ONLY,
  DRAFT_02,
  INLINE,
  probesOf,
  TOLERANT,
} from './define-probe.js';
import { BODY, type Forgery } from '../probe.context.js';
import type { Expectation, Probe } from '../probe.interface.js';

const probes = probesOf('http');
const { refused } = probes();

const METHODS = 'Only the methods of the wire format are allowed.';
const NO_TOKEN = 'A request without a token is not trusted.';
const SCHEME = 'The scheme is Bearer.';
const DISTINCT = 'Senders must be able to tell an invalid token from a wrong body.';
const ONE_CREDENTIAL = 'With two credentials, servers disagree which one counts.';

const NO_CREDENTIAL: Forgery = { authorization: () => [] };
const OTHER_CREDENTIAL = 'Bearer x.y.z';
const UNTRUSTED = { iss: 'https://untrusted.invalid' };
const OTHER_BODY = { body: BODY.replace('1', '2') };

const has = (name: string, what: (value: string) => boolean): Expectation =>
  answered(({ headers }) =>
    what(headers.get(name) ?? '') ? undefined : `the header ${name} is missing or wrong`,
  );

const NOT_STORED = has('cache-control', (value) => /\bno-store\b/i.test(value));
const CHALLENGED = has('www-authenticate', (value) => /\bbearer\b/i.test(value));

/** The receiver answered, and closed the connection or understood the next request on it. */
const IN_SYNC: Expectation = ([first, second]) => {
  if (typeof first === 'string') return `HEAD with Content-Length: ${unanswered(first)}`;
  if (second === 'closed') return undefined;
  if (second === 'timeout')
    return 'the receiver reads the next request as a body and waits for more';
  return second!.status >= 200 && second!.status < 300
    ? undefined
    : `the next request on the connection was answered with ${second!.status}`;
};

/** Method, headers and connection. */
export const HTTP_PROBES: readonly Probe[] = [
  ...['GET', 'PUT', 'PATCH', 'DELETE'].map((method) =>
    refused(`method-${method.toLowerCase()}`, `${method} with a valid token`, METHODS, { method }),
  ),
  probes(DRAFT_02).refused('method-head', 'HEAD', METHODS, (c) => c.raw()),
  probes(ADVISED, {
    expect: all(
      answeredWith(405),
      has('allow', (value) => /POST/.test(value)),
    ),
  }).refused('status-405', 'GET is rejected with 405 and Allow', 'RFC 9110, section 15.5.6.', {
    method: 'GET',
  }),
  refused('no-authorization', 'no Authorization', NO_TOKEN, NO_CREDENTIAL),
  refused('other-scheme', 'Basic', SCHEME, { authorization: () => ['Basic dXNlcjpwYXNz'] }),
  refused('no-credentials', 'Bearer without a token', NO_TOKEN, {
    authorization: () => ['Bearer'],
  }),
  refused('no-scheme', 'the token without a scheme', SCHEME, {
    authorization: (own) => [own.slice('Bearer '.length)],
  }),
  probes(TOLERANT).refused('two-headers', 'two Authorization headers', ONE_CREDENTIAL, {
    authorization: (own) => [own, OTHER_CREDENTIAL],
  }),
  probes(TOLERANT).refused(
    'two-headers-last',
    'two Authorization headers, the valid one last',
    ONE_CREDENTIAL,
    { authorization: (own) => [OTHER_CREDENTIAL, own] },
  ),
  refused('joined-headers', 'two credentials joined by a comma', ONE_CREDENTIAL, {
    authorization: (own) => [`${own}, ${OTHER_CREDENTIAL}`],
  }),
  probes(TOLERANT, {
    expect: all(REFUSED, (outcomes, context) => {
      const last = outcomes.at(-1)!;
      return typeof last !== 'string' && last.status === 401
        ? CHALLENGED(outcomes, context)
        : undefined;
    }),
  }).refused(
    'challenge',
    '401 without a token has WWW-Authenticate',
    'RFC 9110, section 15.5.2, and RFC 6750, section 3.',
    NO_CREDENTIAL,
  ),
  probes(ADVISED, TOLERANT, { expect: answeredWith(401) }).refused(
    'status-401',
    'an invalid token is rejected with 401',
    DISTINCT,
    { claims: UNTRUSTED },
  ),
  probes(ADVISED, { expect: answeredWith(400) }).refused(
    'status-400',
    'a wrong body is rejected with 400',
    DISTINCT,
    (c) => c.post(BODY, OTHER_BODY),
  ),
  probes(ADVISED, {
    ...DEFAULT_ONLY,
    expect: all(
      REFUSED,
      has('content-type', (value) => value.startsWith('application/problem+json')),
    ),
  }).refused(
    'problem',
    'a refused POST explains why',
    'application/problem+json (RFC 9457).',
    (c) => c.post(BODY, OTHER_BODY),
  ),
  probes(ADVISED, { expect: all(ALL_ACCEPTED, NOT_STORED) }).accepted(
    'no-store',
    'an accepted event is not cached',
    'A cache would answer the next HEAD itself.',
    {},
  ),
  probes(ADVISED, { expect: all(REFUSED, NOT_STORED) }).refused(
    'no-store-refused',
    'a refusal is not cached',
    'A cache would refuse the next request itself.',
    { claims: UNTRUSTED },
  ),
  probes(INLINE, ADVISED, { expect: answeredWith(202, 204) }).accepted(
    'head-status',
    'HEAD is acknowledged with 202 or 204',
    'A 200 proves nothing: every GET route answers HEAD with it.',
    {},
  ),
  probes(INLINE, { expect: IN_SYNC }).accepted(
    'head-with-length',
    'HEAD with Content-Length, then another event',
    'A HEAD has no body: a server that waits for one reads the next request as the body.',
    (c) => [c.request({ contentLength: 245 }), c.request({ sameConnection: true })],
  ),
  probes({
    expect: (outcomes, context) =>
      IN_SYNC(outcomes, context)?.replace('HEAD with Content-Length', 'the refused POST'),
  }).accepted(
    'refused-then-event',
    'a refused POST, then an event on the same connection',
    'The rest of a refused body must not be read as a request.',
    (c) => [
      c.post(BODY, { authorization: () => [OTHER_CREDENTIAL] }),
      c.request({ sameConnection: true }),
    ],
  ),
  probes(ADVISED).refused(
    'large-before-read',
    '10 GB are declared, but not sent',
    'A body that is too large is refused before it is read.',
    (c) => c.post(BODY, { body: undefined, contentLength: 10_000_000_000 }),
  ),
  probes(ADVISED).refused(
    'unauthenticated-body',
    'an invalid token and a body that never arrives',
    'A sender without a key must not make the receiver wait for a body.',
    (c) => c.post(BODY, { claims: UNTRUSTED, body: undefined, contentLength: 1_000 }),
  ),
  probes(ADVISED, TOLERANT).refused(
    'token-too-large',
    'a token of 20 kB',
    'A token this long is refused before it is parsed.',
    { claims: { note: 'x'.repeat(15_000) } },
  ),
];
