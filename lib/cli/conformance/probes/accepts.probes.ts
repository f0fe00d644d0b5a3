import { HASH_ALGORITHMS } from '../../../token/webhook-token.constants.js';
import {
  ALL_ACCEPTED,
  ADVISED,
  DEFAULT_ONLY,
  DRAFT_00,
  DRAFT_02,
  DRAFTS,
  HASHED,
  INLINE,
  probesOf,
  TOLERANT,
} from './define-probe.js';
import { BODY } from '../probe.context.js';
import type { Probe } from '../probe.interface.js';

const probes = probesOf('accepts');
const { accepted } = probes();

const NO_DATA = 'An event may have no data.';
const MEDIA_TYPE = 'typ is a media type (RFC 7515, section 4.1.9).';
const CLOCKS = 'Clocks may differ by up to a minute.';

const BYTES = Buffer.from([0, 255, 254, 13, 10, 0, 128, 34, 92]);
const OCTETS = [['Content-Type', 'application/octet-stream']] as const;
const COMPACT_LARGE = JSON.stringify({ note: 'x'.repeat(100_000) });

export const ACCEPTS_PROBES: readonly Probe[] = [
  // The first probe guards all others: if a valid event is refused, other refusals prove nothing.
  accepted('plain', 'a plain event', 'A valid event is accepted.', {}),
  accepted('no-data', 'an event without data', NO_DATA, (c) =>
    c.profile === 'swt-draft-02' ? c.raw({ method: 'POST' }) : c.raw(),
  ),
  accepted('post-json', 'POST with JSON', 'Larger data is sent in the body.', (c) => c.post(BODY)),
  accepted('post-bytes', 'POST with binary data', 'The digest covers bytes.', (c) =>
    c.post(BYTES, { headers: OCTETS }),
  ),
  ...HASH_ALGORITHMS.map((algorithm) =>
    accepted(
      `digest-${algorithm}`,
      `POST with ${algorithm}`,
      'There are six digest algorithms.',
      (c) => c.post(BODY, {}, algorithm),
    ),
  ),
  probes(HASHED).accepted(
    'hash-upper-hex',
    'a digest in upper-case hex',
    'Hex digits may be upper or lower case.',
    (c) => {
      const { hash } = c.stamp(BODY) as { hash: string };
      const [name = '', hex = ''] = hash.split(':');
      return c.post(BODY, { webhook: { hash: `${name}:${hex.toUpperCase()}` } });
    },
  ),
  probes(DEFAULT_ONLY).accepted(
    'post-data',
    'POST without a body, with data',
    'Without a body, the payload is the data of the token.',
    (c) => c.raw({ method: 'POST', webhook: { data: { conformance: true } } }),
  ),
  probes(DEFAULT_ONLY).accepted('post-empty', 'POST without body or data', NO_DATA, (c) =>
    c.raw({ method: 'POST' }),
  ),
  probes(INLINE).accepted(
    'post-empty-digest',
    'POST without a body, with the digest of an empty body',
    'The digest of zero bytes matches an empty body.',
    (c) => c.raw({ method: 'POST', webhook: c.stamp('') }),
  ),
  probes(DEFAULT_ONLY).accepted(
    'post-data-and-hash',
    'POST with body, data and hash',
    'The hash matches, and the payload is the body.',
    (c) => c.post(BODY, { webhook: { data: { n: 2 } } }),
  ),
  probes(DEFAULT_ONLY).accepted(
    'dual-stamp',
    'POST with the digests of both formats',
    'A sender may support receivers of both formats with one request.',
    (c) =>
      c.post(BODY, { webhook: { ...c.stamp(BODY), ...c.stamp(BODY, 'sha3-256', 'swt-draft-00') } }),
  ),
  probes(DRAFT_00).accepted(
    'base64-data',
    'HEAD with data as base64 of the JSON',
    'The reference implementation of the draft sends data this way.',
    { webhook: { data: Buffer.from('{"conformance":true}').toString('base64') } },
  ),
  probes(ADVISED, DRAFT_00).accepted(
    'base64-list',
    'HEAD with an array as base64 of the JSON',
    'The reference implementation of the draft accepts any JSON in this form.',
    { webhook: { data: Buffer.from('[1]').toString('base64') } },
  ),
  probes(ADVISED, DRAFTS).accepted(
    'event-one-word',
    'an event of one word',
    'The drafts recommend <entity>.<action> and do not require it.',
    { webhook: { event: 'ping' } },
  ),
  accepted(
    'times-fraction',
    'times with a fraction',
    'Times may have fractions (RFC 7519, section 2).',
    (c) => c.request({ claims: { iat: c.now - 0.75, nbf: c.now - 0.75, exp: c.now + 60.25 } }),
  ),
  probes(DRAFT_00).accepted(
    'no-hash-alg',
    'POST without hashAlg',
    'The default algorithm is SHA3-256.',
    (c) => {
      const { data } = c.stamp(BODY, 'sha3-256') as { data: object };
      return c.post(BODY, { webhook: { data: { ...data, hashAlg: undefined } } });
    },
  ),
  probes(DRAFT_00).accepted('no-typ', 'no typ', 'This wire format does not check typ.', {
    header: { typ: undefined },
  }),
  probes(DRAFT_02).accepted('retry-count', 'retry_count 3', 'A sender may count its attempts.', {
    webhook: { retry_count: 3 },
  }),
  probes(ADVISED, TOLERANT).accepted(
    'post-chunked',
    'POST in chunks',
    'A body may come without Content-Length (RFC 9112, section 7.1).',
    (c) =>
      c.post(BODY, {
        headers: [...OCTETS, ['Transfer-Encoding', 'chunked']],
        contentLength: null,
      }),
  ),
  accepted('post-large', 'POST with 100 kB', 'POST is for larger data.', (c) =>
    c.post(COMPACT_LARGE),
  ),
  probes(INLINE).accepted('head-large', 'HEAD with 4 kB of data', 'Up to 6 kB may be inline.', {
    webhook: { data: { note: 'x'.repeat(4_000) } },
  }),
  accepted('unicode', 'non-ASCII characters', 'JSON is UTF-8.', (c) =>
    c.profile === 'swt-draft-02'
      ? c.post(JSON.stringify({ name: 'Łódź 日本 😀' }))
      : c.request({ webhook: { data: { name: 'Łódź 日本 😀', quote: '"\\\n' } } }),
  ),
  accepted(
    'content-type-charset',
    'a content type with charset',
    'UTF-8 is the charset of JSON, and may be declared.',
    (c) => c.post(BODY, { headers: [['Content-Type', 'application/json; charset=utf-8']] }),
  ),
  accepted(
    'unknown-claim',
    'an unknown claim',
    'Unknown claims are ignored (RFC 7519, section 4).',
    { claims: { color: 'red', nested: { a: [1] } } },
  ),
  accepted(
    'unknown-header',
    'an unknown header member',
    'Unknown header members are ignored (RFC 7515, section 4).',
    { header: { 'x-color': 'red' } },
  ),
  accepted('with-sub', 'with sub', 'sub is a registered, optional claim.', {
    claims: { sub: 'customer-7' },
  }),
  accepted('with-txn', 'with txn', 'txn identifies the event (RFC 8417, section 2.2).', (c) =>
    c.request({ claims: { txn: crypto.randomUUID() } }),
  ),
  probes(INLINE).accepted(
    'data-colons',
    'data with strings that begin with a colon',
    'Only a string directly before a colon is a name (RFC 8259, section 4).',
    { webhook: { data: { list: [':a:', ':b:', '"', ': '] } } },
  ),
  probes(INLINE, { expect: ALL_ACCEPTED }).accepted(
    'data-names',
    'data with the names constructor, 0 and 1',
    'Any string can be a name (RFC 8259, section 4).',
    (c) =>
      [{ constructor: 'a' }, { 0: 'a', 1: 'b' }].map((data) => c.request({ webhook: { data } })),
  ),
  probes(INLINE, ADVISED, { expect: ALL_ACCEPTED }).accepted(
    'data-nested',
    'data that nests 64 levels',
    'Senders may nest data this deep.',
    (c) => {
      const json = `${'{"a":'.repeat(64)}1${'}'.repeat(64)}`;
      return [c.request({ webhook: { data: JSON.parse(json) as object } }), c.post(json)];
    },
  ),
  probes(DEFAULT_ONLY).accepted('no-nbf', 'no nbf', "The specification's own example has none.", {
    claims: { nbf: undefined },
  }),
  probes(ADVISED, DEFAULT_ONLY).accepted('typ-lower-case', 'typ in lower case', MEDIA_TYPE, {
    header: { typ: 'jwt' },
  }),
  probes(ADVISED, DEFAULT_ONLY).accepted('typ-application', 'typ application/jwt', MEDIA_TYPE, {
    header: { typ: 'application/jwt' },
  }),
  probes(ADVISED).accepted(
    'no-kid',
    'no kid',
    'kid is optional: all keys of the issuer are tried.',
    (c) => (c.settings.kid === undefined ? undefined : c.request({ header: { kid: undefined } })),
  ),
  accepted(
    'audience-list',
    'the audience in an array',
    'aud may be an array (RFC 7519, section 4.1.3).',
    (c) => {
      const { audience } = c.settings;
      if (audience === undefined) return undefined;
      return c.request({ claims: { aud: ['https://other.example', audience] } });
    },
  ),
  probes(ADVISED, TOLERANT).accepted('expired-just-now', 'expired half a minute ago', CLOCKS, (c) =>
    c.request({ claims: { iat: c.now - 300, nbf: c.now - 300, exp: c.now - 30 } }),
  ),
  probes(ADVISED, TOLERANT).accepted('issued-soon', 'issued in half a minute', CLOCKS, (c) =>
    c.request({ claims: { iat: c.now + 30, nbf: c.now + 30 } }),
  ),
  probes(ADVISED).accepted(
    'hour-long',
    'a lifetime of one hour',
    "The draft's own example is valid for an hour.",
    (c) => c.request({ claims: { exp: c.now + 3_600 } }),
  ),
  probes(TOLERANT).accepted(
    'scheme-lower-case',
    'the scheme in lower case',
    'Schemes are case-insensitive (RFC 9110, section 11.1).',
    { authorization: (own) => [own.replace('Bearer', 'bearer')] },
  ),
  probes(ADVISED, { expect: ALL_ACCEPTED }).accepted(
    'kept-connection',
    'two events on one connection',
    'A connection may be reused.',
    (c) => [c.request(), c.request({ sameConnection: true })],
  ),
];
