import { gzipSync } from 'node:zlib';
import { BODY } from '../probe.context.js';
import type { Probe } from '../probe.interface.js';
import { ADVISED, DEFAULT_ONLY, DRAFT_00, DRAFT_02, HASHED, probesOf } from './define-probe.js';

const probes = probesOf('body');
const { refused } = probes();

const EXACT = 'The digest covers the exact bytes of the body.';
const GRAMMAR =
  'A hash is one of six algorithm names, a colon, and hex digits of the exact length.';
const UNAUTHENTICATED = 'No hash covers the body.';

const OTHER = BODY.replace('1', '2');
const REWRITTEN = '{"n":1,"conformance":true}';
const SPACED = '{ "conformance": true, "n": 1 }';

const hash = (change: (hash: string) => unknown) => (stamp: object) => ({
  webhook: { hash: change((stamp as { hash: string }).hash) },
});

/** Bodies that are not the one that the token was issued for. */
export const BODY_PROBES: readonly Probe[] = [
  refused('other', 'another body of the same length', EXACT, (c) => c.post(BODY, { body: OTHER })),
  refused('cut', 'a truncated body', EXACT, (c) => c.post(BODY, { body: BODY.slice(0, -1) })),
  refused('longer', 'a body with one more byte', EXACT, (c) => c.post(BODY, { body: `${BODY}\n` })),
  refused('rewritten', 'the same JSON with members in another order', EXACT, (c) =>
    c.post(BODY, { body: REWRITTEN }),
  ),
  refused('spaced', 'the same JSON with white space', EXACT, (c) => c.post(BODY, { body: SPACED })),
  refused('bytes', 'other bytes that decode to the same string', EXACT, (c) =>
    c.post(Buffer.from([0x22, 0xef, 0xbf, 0xbd, 0x22]), { body: Buffer.from([0x22, 0xff, 0x22]) }),
  ),
  refused('missing', 'no body, but the digest of one', EXACT, (c) =>
    c.raw({ method: 'POST', webhook: c.stamp(BODY) }),
  ),
  refused('digest-of-nothing', 'a body with the digest of an empty body', EXACT, (c) =>
    c.post(BODY, { webhook: c.stamp('') }),
  ),
  refused('no-hash', 'a body without a digest', UNAUTHENTICATED, (c) =>
    c.raw({ method: 'POST', body: BODY }),
  ),
  refused('no-hash-byte', 'one byte without a digest', UNAUTHENTICATED, (c) =>
    c.raw({ method: 'POST', body: ' ' }),
  ),
  probes({ profiles: ['webhook-token', 'swt-draft-00'] }).refused(
    'no-hash-data',
    'a body with data, without a digest',
    UNAUTHENTICATED,
    (c) => c.raw({ method: 'POST', body: BODY, webhook: { data: { n: 1 } } }),
  ),
  probes(DEFAULT_ONLY).refused(
    'data-and-other',
    'data, and a body that does not match its digest',
    EXACT,
    (c) => c.post(BODY, { body: OTHER, webhook: { data: { n: 1 } } }),
  ),
  probes(DEFAULT_ONLY).refused(
    'head-hash',
    'a digest on HEAD',
    'A HEAD has no body to check.',
    (c) => c.raw({ webhook: c.stamp(BODY) }),
  ),
  probes(DRAFT_02).refused(
    'empty-hash',
    'the digest of an empty body, and no body',
    'An empty body has no hash.',
    (c) => c.raw({ method: 'POST', webhook: c.stamp('') }),
  ),
  ...(
    [
      ['hash-md5', 'md5', 'md5:d41d8cd98f00b204e9800998ecf8427e'],
      ['hash-sha1', 'sha1', 'sha1:da39a3ee5e6b4b0d3255bfef95601890afd80709'],
      ['hash-empty', 'an empty digest', ''],
      ['hash-prototype', 'a digest named __proto__', `__proto__:${'0'.repeat(64)}`],
    ] as const
  ).map(([name, title, value]) =>
    probes(HASHED).refused(name, title, GRAMMAR, (c) => c.post(BODY, { webhook: { hash: value } })),
  ),
  probes(HASHED).refused('hash-short', 'a digest of half the length', GRAMMAR, (c) =>
    c.post(BODY, hash((text) => text.slice(0, -32))(c.stamp(BODY))),
  ),
  probes(HASHED).refused('hash-one-digit', 'a digest that is one digit short', GRAMMAR, (c) =>
    c.post(BODY, hash((text) => text.slice(0, -1))(c.stamp(BODY))),
  ),
  probes(HASHED).refused(
    'hash-other-name',
    'a digest with the name of another algorithm',
    GRAMMAR,
    (c) => c.post(BODY, hash((text) => text.replace(/^[^:]+/, 'sha3-256'))(c.stamp(BODY))),
  ),
  probes(HASHED).refused('hash-two', 'two digests in one string', GRAMMAR, (c) =>
    c.post(BODY, hash((text) => `${text},${text}`)(c.stamp(BODY))),
  ),
  probes(ADVISED, HASHED).refused(
    'hash-upper-name',
    'the algorithm name in upper case',
    GRAMMAR,
    (c) => c.post(BODY, hash((text) => text.replace(/^sha/, 'SHA'))(c.stamp(BODY))),
  ),
  probes(HASHED).refused('hash-list', 'an array as hash', GRAMMAR, (c) =>
    c.post(BODY, hash((text) => [text])(c.stamp(BODY))),
  ),
  probes(HASHED).refused(
    'hash-foreign-name',
    'the algorithm name of the other wire format',
    'Wire formats must not be mixed.',
    (c) => {
      const other = c.profile === 'webhook-token' ? 'swt-draft-02' : 'webhook-token';
      return c.post(BODY, { webhook: c.stamp(BODY, 'sha256', other) });
    },
  ),
  probes(DEFAULT_ONLY).refused(
    'draft-stamp-alone',
    "the draft's digest alone",
    'Wire formats must not be mixed.',
    (c) =>
      c.raw({ method: 'POST', body: BODY, webhook: c.stamp(BODY, 'sha3-256', 'swt-draft-00') }),
  ),
  ...([-1, 1] as const).map((off) =>
    probes(DRAFT_00).refused(
      `size${off === -1 ? '-less' : '-more'}`,
      `size off by ${off}`,
      'size is the length of the body.',
      (c) => {
        const { data } = c.stamp(BODY) as { data: { size: number } };
        return c.post(BODY, { webhook: { data: { ...data, size: data.size + off } } });
      },
    ),
  ),
  probes(DRAFT_00).refused('hash-alg-unknown', 'hashAlg MD5', 'hashAlg is one of six.', (c) => {
    const { data } = c.stamp(BODY) as { data: object };
    return c.post(BODY, { webhook: { data: { ...data, hashAlg: 'MD5' } } });
  }),
  probes(DRAFT_00).refused(
    'hash-alg-other',
    'the name of another algorithm of the same length',
    EXACT,
    (c) => {
      const { data } = c.stamp(BODY) as { data: object };
      return c.post(BODY, { webhook: { data: { ...data, hashAlg: 'SHA3-256' } } });
    },
  ),
  refused('encoded', 'a compressed body with the digest of the uncompressed one', EXACT, (c) =>
    c.post(BODY, {
      body: gzipSync(BODY),
      headers: [
        ['Content-Type', 'application/json'],
        ['Content-Encoding', 'gzip'],
      ],
    }),
  ),
  probes(ADVISED, DEFAULT_ONLY).refused(
    'encoded-digested',
    'a compressed body with its own digest',
    'It is ambiguous whether the digest covers the compressed bytes, so receivers refuse it.',
    (c) => {
      const zipped = gzipSync(BODY);
      return c.post(zipped, {
        headers: [
          ['Content-Type', 'application/json'],
          ['Content-Encoding', 'gzip'],
        ],
      });
    },
  ),
  probes(ADVISED).refused(
    'not-json',
    'an authentic body that is declared as JSON, but is not',
    'It cannot be handled.',
    (c) => c.post('{"conformance":'),
  ),
  probes(ADVISED).refused(
    'not-utf8',
    'an authentic body that is declared as JSON, but is not UTF-8',
    'JSON is exchanged in UTF-8 (RFC 8259, section 8.1).',
    (c) => c.post(Buffer.from([0x22, 0xff, 0x22])),
  ),
];
