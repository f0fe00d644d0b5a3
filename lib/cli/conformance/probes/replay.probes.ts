import { randomUUID } from 'node:crypto';
import { ALL_ACCEPTED, REFUSED, unanswered, ADVISED, probesOf, TOLERANT } from './define-probe.js';
import { BODY } from '../probe.context.js';
import type { Expectation, Probe, ProbeRequest } from '../probe.interface.js';

const probes = probesOf('replay');
const { accepted } = probes();

const ONCE = 'An event is handled once.';

/** A copy is acknowledged as a copy, or refused; more cannot be observed from outside. */
const RECOGNISED: Expectation = ([first, second]) => {
  if (typeof first === 'string') return unanswered(first);
  if (typeof second === 'string') return unanswered(second);
  if (first === undefined || second === undefined || first.status >= 300) {
    return `the first was answered with ${first?.status}`;
  }
  if (second.status >= 400 && second.status < 500) return undefined;
  if (second.status >= 300) return `the copy was answered with ${second.status}`;
  return second.headers.has('webhook-duplicate')
    ? undefined
    : `the copy was answered with ${second.status} like the first, so it may have been handled twice`;
};

/** The receiver answers a duplicate with a success or a 4xx, so that its sender knows what to do. */
const ANSWERED: Expectation = ([first, second]) => {
  if (typeof first === 'string') return unanswered(first);
  if (typeof second === 'string') return unanswered(second);
  const { status } = second!;
  return (status >= 200 && status < 300) || (status >= 400 && status < 500)
    ? undefined
    : `the copy was answered with ${status}`;
};

const twice = (request: ProbeRequest): ProbeRequest[] => [request, request];

/** Copies of events. */
export const REPLAY_PROBES: readonly Probe[] = [
  probes({ expect: ANSWERED }).accepted('same-token', 'the same token twice', ONCE, (c) =>
    twice(c.request()),
  ),
  probes(ADVISED, { expect: RECOGNISED }).accepted(
    'same-token-seen',
    'the same token twice, recognised as a copy',
    ONCE,
    (c) => twice(c.request()),
  ),
  probes({ expect: ANSWERED }).accepted('same-post', 'the same POST twice', ONCE, (c) =>
    twice(c.post(BODY)),
  ),
  probes({ expect: ANSWERED }).accepted(
    'same-deep-post',
    'the same POST twice, nesting 20,000 levels',
    'Recursive code overflows the stack.',
    (c) => twice(c.post('['.repeat(20_000) + ']'.repeat(20_000))),
  ),
  probes(ADVISED, TOLERANT, { expect: RECOGNISED }).accepted(
    'same-txn-seen',
    'one event in two tokens, recognised as a copy',
    'txn identifies the event, jti the token.',
    (c) => {
      const claims = { txn: randomUUID() };
      return [c.request({ claims }), c.request({ claims })];
    },
  ),
  probes(ADVISED, { expect: REFUSED }).refused(
    'same-id-other-content',
    'one jti for two events',
    'An id with other content is not a retry.',
    (c) => {
      const claims = { jti: randomUUID() };
      return [c.post(BODY, { claims }), c.post('{"conformance":false}', { claims })];
    },
  ),
  probes({ expect: ALL_ACCEPTED }).accepted(
    'two-events',
    'two events',
    'Two tokens are two events.',
    (c) => [c.request(), c.request()],
  ),
  accepted(
    'tampered-first',
    'a tampered copy, then the event',
    'A refused body must not use up the id.',
    (c) => {
      const right = c.post(BODY);
      return [{ ...right, body: Buffer.from(BODY.replace('1', '2')) }, right];
    },
  ),
];
