import type { Probe } from '../probe.interface.js';
import {
  ADVISED,
  ALL_REFUSED,
  DEFAULT_ONLY,
  DRAFT_00,
  DRAFTS,
  probesOf,
  REPEATED,
  TOLERANT,
  withMember,
} from './define-probe.js';

const probes = probesOf('token');
const { refused } = probes();

const JSON_OBJECT = 'The claims are one JSON object in UTF-8 (RFC 7519, section 7.2).';
const NUMBER = 'Times are numbers (RFC 7519, section 2).';
const REQUIRED = 'The claim is required.';

/** Wrong claims with a valid signature. */
export const CLAIM_PROBES: readonly Probe[] = [
  ...['webhook', 'iss', 'exp', 'iat', 'jti'].map((claim) =>
    refused(`no-${claim}`, `no ${claim}`, REQUIRED, { claims: { [claim]: undefined } }),
  ),
  probes(DRAFTS).refused('no-nbf', 'no nbf', REQUIRED, {
    claims: { nbf: undefined },
  }),
  refused('no-event', 'no event', REQUIRED, { webhook: { event: undefined } }),
  refused('expired', 'expired an hour ago', 'now < exp.', (c) =>
    c.request({ claims: { iat: c.now - 3_900, nbf: c.now - 3_900, exp: c.now - 3_600 } }),
  ),
  refused(
    'expired-minutes',
    'expired six minutes ago',
    'now < exp, beyond every allowed tolerance.',
    (c) => c.request({ claims: { iat: c.now - 660, nbf: c.now - 660, exp: c.now - 360 } }),
  ),
  probes(DRAFT_00).refused(
    'expired-seconds',
    'expired ten seconds ago',
    'This wire format has no clock tolerance.',
    (c) => c.request({ claims: { iat: c.now - 300, nbf: c.now - 300, exp: c.now - 10 } }),
  ),
  refused('nbf-future', 'valid in an hour', 'nbf <= now.', (c) =>
    c.request({ claims: { nbf: c.now + 3_500, exp: c.now + 3_590 } }),
  ),
  probes({ expect: ALL_REFUSED }).refused('nbf-other', 'nbf null or false', NUMBER, (c) =>
    [null, false].map((nbf) => c.request({ claims: { nbf } })),
  ),
  refused('iat-future', 'issued in an hour', 'iat <= now.', (c) =>
    c.request({ claims: { iat: c.now + 3_600, nbf: c.now, exp: c.now + 3_700 } }),
  ),
  refused(
    'exp-milliseconds',
    'exp in milliseconds',
    'Times are seconds: in milliseconds, the token would never expire.',
    (c) => c.request({ claims: { exp: c.now * 1_000 } }),
  ),
  refused('exp-text', 'exp as a string', NUMBER, (c) =>
    c.request({ claims: { exp: String(c.now + 300) } }),
  ),
  refused('exp-infinite', 'exp 1e400', 'Parsed as infinity, it never expires.', {
    claimsText: (json) => json.replace(/"exp":\d+/, '"exp":1e400'),
  }),
  refused('exp-null', 'exp null', NUMBER, {
    claims: { exp: null },
  }),
  probes(ADVISED, TOLERANT).refused('exp-before-iat', 'exp before iat', 'exp is after iat.', (c) =>
    c.request({ claims: { iat: c.now, nbf: c.now, exp: c.now - 1 } }),
  ),
  refused(
    'long-lived',
    'a lifetime of ten years',
    'Ids must be remembered as long as the token is valid, or it can be replayed.',
    (c) => c.request({ claims: { exp: c.now + 315_360_000 } }),
  ),
  refused('jti-empty', 'an empty jti', 'jti identifies the token.', { claims: { jti: '' } }),
  refused('jti-number', 'a number as jti', 'jti is a string (RFC 7519, section 4.1.7).', {
    claims: { jti: 7 },
  }),
  probes(ADVISED).refused('jti-long', 'a jti of 10000 characters', 'Receivers store it.', {
    claims: { jti: 'j'.repeat(10_000) },
  }),
  probes(ADVISED).refused(
    'jti-control',
    'a jti with a control character',
    'Receivers store and log it.',
    { claims: { jti: 'a\u0000b' } },
  ),
  probes({ expect: ALL_REFUSED }).refused(
    'txn-other',
    'a txn that is not a string of 1 to 255 characters',
    'txn identifies the event.',
    (c) =>
      ['', 't'.repeat(256), 7, true, null, [], { id: 't' }].map((txn) =>
        c.request({ claims: { txn } }),
      ),
  ),
  refused('iss-other', 'another issuer with the correct key', 'A key belongs to one issuer.', {
    claims: { iss: 'https://untrusted.invalid' },
  }),
  refused('iss-list', 'an array as iss', 'iss is a string (RFC 7519, section 4.1.1).', (c) =>
    c.request({ claims: { iss: [c.settings.issuer] } }),
  ),
  refused(
    'aud-other',
    'another audience',
    'aud must name the receiver (RFC 7519, section 4.1.3).',
    { claims: { aud: 'https://other-audience.invalid' } },
  ),
  refused('aud-null', 'aud null', 'aud is a string or an array (RFC 7519, section 4.1.3).', {
    claims: { aud: null },
  }),
  probes(ADVISED).refused(
    'aud-missing',
    'no audience, although the receiver has one',
    'A token without an audience could be used at any receiver.',
    (c) =>
      c.settings.audience === undefined ? undefined : c.request({ claims: { aud: undefined } }),
  ),
  probes(ADVISED, DEFAULT_ONLY).refused(
    'event-no-dot',
    'an event without a dot',
    'An event is <entity>.<action>.',
    { webhook: { event: 'order' } },
  ),
  refused('event-empty', 'an empty event', 'An event has a name.', { webhook: { event: '' } }),
  refused('event-list', 'an array as event', 'An event has one name.', (c) =>
    c.request({ webhook: { event: [c.settings.event] } }),
  ),
  refused('webhook-text', 'a string as webhook', 'webhook is an object.', {
    claims: { webhook: 'order.created' },
  }),
  refused('webhook-null', 'webhook null', 'webhook is an object.', { claims: { webhook: null } }),
  probes(DEFAULT_ONLY, { expect: ALL_REFUSED }).refused(
    'data-list',
    'an array as data',
    'data is an object.',
    (c) => [[1], []].map((data) => c.request({ webhook: { data } })),
  ),
  probes(DEFAULT_ONLY).refused('data-null', 'data null', 'data is an object.', {
    webhook: { data: null },
  }),
  probes(DEFAULT_ONLY).refused('data-text', 'a string as data', 'data is an object.', {
    webhook: { data: 'e30=' },
  }),
  probes(ADVISED, DEFAULT_ONLY).refused(
    'data-prototype',
    'data that replaces a prototype',
    'A careless merge would pollute prototypes.',
    { claimsText: (json) => json.replace('"data":{', '"data":{"__proto__":{"admin":true},') },
  ),
  probes(ADVISED, DEFAULT_ONLY).refused(
    'data-deep',
    'data that nests 1000 levels',
    'Recursive code overflows the stack.',
    {
      claimsText: (json) =>
        json.replace('"data":{', `"data":{"deep":${'['.repeat(1_000)}${']'.repeat(1_000)},`),
    },
  ),
  refused('exp-twice', 'exp repeated', REPEATED, (c) =>
    c.request({
      claims: { exp: c.now - 3_600 },
      claimsText: (json) => `${json.slice(0, -1)},"exp":${c.now + 300}}`,
    }),
  ),
  refused('iss-twice', 'iss repeated', REPEATED, {
    claimsText: (json) => withMember('"iss":"https://untrusted.invalid"', json),
  }),
  refused('event-twice', 'event repeated', REPEATED, {
    claimsText: (json) => json.replace('"webhook":{', '"webhook":{"event":"other.event",'),
  }),
  probes(ADVISED).refused('byte-order-mark', 'a byte order mark before the claims', JSON_OBJECT, {
    claimsText: (json) => `\ufeff${json}`,
  }),
  refused('claims-list', 'an array as claims', JSON_OBJECT, { claimsText: (json) => `[${json}]` }),
  refused('claims-text', 'claims that are not JSON', JSON_OBJECT, {
    claimsText: () => 'order.created',
  }),
  probes(ADVISED).refused('claims-not-utf8', 'claims that are not UTF-8', JSON_OBJECT, {
    claimsText: (json) =>
      Buffer.concat([
        Buffer.from(json.slice(0, -1)),
        Buffer.from(',"x":"'),
        Buffer.from([0xff, 0xfe]),
        Buffer.from('"}'),
      ]),
  }),
  refused('claims-cut', 'truncated claims', JSON_OBJECT, {
    claimsText: (json) => json.slice(0, -1),
  }),
];
