import type { Probe } from '../probe.interface.js';
import { ADVISED, DEFAULT_ONLY, probesOf, TOLERANT } from './define-probe.js';

const { refused } = probesOf('token');

const TWICE = 'Two parsers read two different tokens where a member stands twice.';
const JSON_OBJECT = 'The claims are one JSON object in UTF-8 (RFC 7519, section 7.2).';
const REQUIRED = 'The claim is required.';

const member = (text: string, json: string): string => `{${text},${json.slice(1)}`;

/** Claims that the issuer itself has signed, and that are wrong. */
export const CLAIM_PROBES: readonly Probe[] = [
  ...['webhook', 'iss', 'exp', 'iat', 'jti'].map((claim) =>
    refused(`no-${claim}`, `no ${claim}`, REQUIRED, { claims: { [claim]: undefined } }),
  ),
  refused(
    'no-nbf',
    'no nbf',
    REQUIRED,
    { claims: { nbf: undefined } },
    {
      profiles: ['swt-draft-00', 'swt-draft-02'],
    },
  ),
  refused('no-event', 'no event', REQUIRED, { webhook: { event: undefined } }),
  refused('expired', 'expired an hour ago', 'now < exp.', (c) =>
    c.request({ claims: { iat: c.now - 3_900, nbf: c.now - 3_900, exp: c.now - 3_600 } }),
  ),
  refused(
    'expired-minutes',
    'expired six minutes ago',
    'now < exp, and no tolerance is that wide.',
    (c) => c.request({ claims: { iat: c.now - 660, nbf: c.now - 660, exp: c.now - 360 } }),
  ),
  refused(
    'expired-seconds',
    'expired ten seconds ago',
    'This format has no tolerance.',
    (c) => c.request({ claims: { iat: c.now - 300, nbf: c.now - 300, exp: c.now - 10 } }),
    { profiles: ['swt-draft-00'] },
  ),
  refused('nbf-future', 'valid in an hour', 'nbf <= now.', (c) =>
    c.request({ claims: { nbf: c.now + 3_500, exp: c.now + 3_590 } }),
  ),
  refused('iat-future', 'issued in an hour', 'iat <= now.', (c) =>
    c.request({ claims: { iat: c.now + 3_600, nbf: c.now, exp: c.now + 3_700 } }),
  ),
  refused(
    'exp-milliseconds',
    'exp in milliseconds',
    'Times are seconds: these would hold for ever.',
    (c) => c.request({ claims: { exp: c.now * 1_000 } }),
  ),
  refused('exp-text', 'exp as a text', 'Times are numbers (RFC 7519, section 2).', (c) =>
    c.request({ claims: { exp: String(c.now + 300) } }),
  ),
  refused(
    'exp-infinite',
    'exp 1e400',
    'Parsers make infinity of it, and the token never expires.',
    {
      claimsText: (json) => json.replace(/"exp":\d+/, '"exp":1e400'),
    },
  ),
  refused('exp-null', 'exp null', 'Times are numbers (RFC 7519, section 2).', {
    claims: { exp: null },
  }),
  refused(
    'exp-before-iat',
    'exp before iat',
    'exp lies after iat.',
    (c) => c.request({ claims: { iat: c.now, nbf: c.now, exp: c.now - 1 } }),
    { ...ADVISED, ...TOLERANT },
  ),
  refused(
    'long-lived',
    'a lifetime of ten years',
    'What lives long must be remembered long, or is replayed.',
    (c) => c.request({ claims: { exp: c.now + 315_360_000 } }),
  ),
  refused('jti-empty', 'an empty jti', 'jti names the token.', { claims: { jti: '' } }),
  refused('jti-number', 'a number as jti', 'jti is a text (RFC 7519, section 4.1.7).', {
    claims: { jti: 7 },
  }),
  refused(
    'jti-long',
    'a jti of 10000 characters',
    'It is stored.',
    { claims: { jti: 'j'.repeat(10_000) } },
    ADVISED,
  ),
  refused(
    'jti-control',
    'a jti with a control character',
    'It is stored, and reaches logs.',
    { claims: { jti: 'a\u0000b' } },
    ADVISED,
  ),
  refused('iss-other', 'another issuer, with the right key', 'A key belongs to one issuer.', {
    claims: { iss: 'https://nobody.invalid' },
  }),
  refused('iss-list', 'a list as iss', 'iss is a text (RFC 7519, section 4.1.1).', (c) =>
    c.request({ claims: { iss: [c.settings.issuer] } }),
  ),
  refused(
    'aud-other',
    'meant for another audience',
    'aud must name the receiver (RFC 7519, section 4.1.3).',
    {
      claims: { aud: 'https://somebody-else.invalid' },
    },
  ),
  refused(
    'aud-missing',
    'no audience, where the receiver has one',
    'A token for nobody in particular is one for everybody.',
    (c) =>
      c.settings.audience === undefined ? undefined : c.request({ claims: { aud: undefined } }),
    ADVISED,
  ),
  refused(
    'event-no-dot',
    'an event without a dot',
    'An event is <entity>.<action>.',
    { webhook: { event: 'order' } },
    { ...ADVISED, ...DEFAULT_ONLY },
  ),
  refused('event-empty', 'an empty event', 'An event has a name.', { webhook: { event: '' } }),
  refused('event-list', 'a list as event', 'An event has one name.', (c) =>
    c.request({ webhook: { event: [c.settings.event] } }),
  ),
  refused('webhook-text', 'a text as webhook', 'webhook is an object.', {
    claims: { webhook: 'order.created' },
  }),
  refused('webhook-null', 'webhook null', 'webhook is an object.', { claims: { webhook: null } }),
  refused(
    'data-list',
    'a list as data',
    'data is an object.',
    { webhook: { data: [1] } },
    DEFAULT_ONLY,
  ),
  refused(
    'data-text',
    'a text as data',
    'data is an object.',
    { webhook: { data: 'e30=' } },
    DEFAULT_ONLY,
  ),
  refused(
    'data-prototype',
    'data that replaces a prototype',
    'A careless merge would pollute prototypes.',
    {
      claimsText: (json) => json.replace('"data":{', '"data":{"__proto__":{"admin":true},'),
    },
    { ...ADVISED, ...DEFAULT_ONLY },
  ),
  refused(
    'data-deep',
    'data that nests 1000 levels',
    'Recursive code runs out of stack.',
    {
      claimsText: (json) =>
        json.replace('"data":{', `"data":{"deep":${'['.repeat(1_000)}${']'.repeat(1_000)},`),
    },
    { ...ADVISED, ...DEFAULT_ONLY },
  ),
  refused('exp-twice', 'exp twice', TWICE, (c) =>
    c.request({
      claims: { exp: c.now - 3_600 },
      claimsText: (json) => `${json.slice(0, -1)},"exp":${c.now + 300}}`,
    }),
  ),
  refused('iss-twice', 'iss twice', TWICE, {
    claimsText: (json) => member('"iss":"https://nobody.invalid"', json),
  }),
  refused('event-twice', 'event twice', TWICE, {
    claimsText: (json) => json.replace('"webhook":{', '"webhook":{"event":"other.event",'),
  }),
  refused(
    'byte-order-mark',
    'a byte order mark before the claims',
    JSON_OBJECT,
    { claimsText: (json) => `\ufeff${json}` },
    ADVISED,
  ),
  refused('claims-list', 'a list as claims', JSON_OBJECT, { claimsText: (json) => `[${json}]` }),
  refused('claims-text', 'claims that are no JSON', JSON_OBJECT, {
    claimsText: () => 'order.created',
  }),
  refused(
    'claims-not-utf8',
    'claims that are no UTF-8',
    JSON_OBJECT,
    {
      claimsText: (json) =>
        Buffer.concat([
          Buffer.from(json.slice(0, -1)),
          Buffer.from(',"x":"'),
          Buffer.from([0xff, 0xfe]),
          Buffer.from('"}'),
        ]),
    },
    ADVISED,
  ),
  refused('claims-cut', 'claims cut off', JSON_OBJECT, { claimsText: (json) => json.slice(0, -1) }),
];
