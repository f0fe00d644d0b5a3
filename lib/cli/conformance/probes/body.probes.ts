import { createHash } from 'node:crypto';
import { gzipSync } from 'node:zlib';
import { BODY } from '../probe.context.js';
import type { Probe } from '../probe.interface.js';
import {
  ADVISED,
  DEFAULT_ONLY,
  DRAFT_00,
  DRAFT_02,
  HASHED,
  INLINE,
  probesOf,
} from './define-probe.js';

const probes = probesOf('body');
const { refused } = probes();

const EXACT = 'The digest covers the exact bytes of the body.';
const GRAMMAR =
  'A hash is one of six algorithm names, a colon, and hex digits of the exact length.';
const MIXED = 'Wire formats must not be mixed.';
const UNAUTHENTICATED = 'No hash covers the body.';

const GZIPPED = [
  ['Content-Type', 'application/json'],
  ['Content-Encoding', 'gzip'],
] as const;

const digest = (algorithm: string): string => createHash(algorithm).update(BODY).digest('hex');

const OTHER = BODY.replace('1', '2');
const REWRITTEN = '{"n":1,"conformance":true}';
const SPACED = '{ "conformance": true, "n": 1 }';

/** A token whose hash is changed. */
const hashed = (
  name: string,
  title: string,
  change: (hash: string) => unknown,
  level: Partial<typeof ADVISED> = {},
): Probe =>
  probes(HASHED, level).refused(name, title, GRAMMAR, (c) => {
    const { hash } = c.stamp(BODY) as { hash: string };
    return c.post(BODY, { webhook: { hash: change(hash) } });
  });

/** A token whose reference to the body, in the first draft, is changed. */
const referenced = (
  name: string,
  title: string,
  reason: string,
  change: (data: { readonly size: number }) => object,
): Probe =>
  probes(DRAFT_00).refused(name, title, reason, (c) => {
    const { data } = c.stamp(BODY) as { data: { size: number } };
    return c.post(BODY, { webhook: { data: { ...data, ...change(data) } } });
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
  probes(INLINE).refused(
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
  hashed('hash-md5', 'md5', () => `md5:${digest('md5')}`),
  hashed('hash-sha1', 'sha1', () => `sha1:${digest('sha1')}`),
  hashed('hash-empty', 'an empty digest', () => ''),
  hashed('hash-prototype', 'a digest named __proto__', () => `__proto__:${'0'.repeat(64)}`),
  hashed('hash-short', 'a digest of half the length', (hash) => hash.slice(0, -32)),
  hashed('hash-one-digit', 'a digest that is one digit short', (hash) => hash.slice(0, -1)),
  hashed('hash-other-name', 'a digest with the name of another algorithm', (hash) =>
    hash.replace(/^[^:]+/, 'sha3-256'),
  ),
  hashed('hash-two', 'two digests in one string', (hash) => `${hash},${hash}`),
  hashed(
    'hash-upper-name',
    'the algorithm name in upper case',
    (hash) => hash.replace(/^sha/, 'SHA'),
    ADVISED,
  ),
  hashed('hash-list', 'an array as hash', (hash) => [hash]),
  probes(HASHED).refused(
    'hash-foreign-name',
    'the algorithm name of the other wire format',
    MIXED,
    (c) => {
      const other = c.profile === 'webhook-token' ? 'swt-draft-02' : 'webhook-token';
      return c.post(BODY, { webhook: c.stamp(BODY, 'sha256', other) });
    },
  ),
  probes(DEFAULT_ONLY).refused('draft-stamp-alone', "the draft's digest alone", MIXED, (c) =>
    c.raw({ method: 'POST', body: BODY, webhook: c.stamp(BODY, 'sha3-256', 'swt-draft-00') }),
  ),
  ...[-1, 1].map((off) =>
    referenced(
      `size${off === -1 ? '-less' : '-more'}`,
      `size off by ${off}`,
      'size is the length of the body.',
      ({ size }) => ({ size: size + off }),
    ),
  ),
  referenced('hash-alg-unknown', 'hashAlg MD5', 'hashAlg is one of six.', () => ({
    hashAlg: 'MD5',
    hash: digest('md5'),
  })),
  referenced('hash-alg-other', 'the name of another algorithm of the same length', EXACT, () => ({
    hashAlg: 'SHA3-256',
  })),
  refused('encoded', 'a compressed body with the digest of the uncompressed one', EXACT, (c) =>
    c.post(BODY, { body: gzipSync(BODY), headers: GZIPPED }),
  ),
  probes(ADVISED, DEFAULT_ONLY).refused(
    'encoded-digested',
    'a compressed body with its own digest',
    'It is ambiguous whether the digest covers the compressed bytes, so receivers refuse it.',
    (c) => c.post(gzipSync(BODY), { headers: GZIPPED }),
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
