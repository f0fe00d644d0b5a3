import { hmacSigner } from '../probe.signer.js';
import type { Probe } from '../probe.interface.js';
import { ADVISED, DEFAULT_ONLY, probesOf, TOLERANT } from './define-probe.js';

const { refused } = probesOf('token');

const ALGORITHM = 'The key decides the algorithm, never the token (RFC 8725, section 3.1).';
const COMPACT =
  'Three parts of base64url, each in its one spelling (RFC 7515, sections 2 and 7.1).';
const COVERED = 'The signature covers header and claims.';
const EXTENSION = 'An extension that is not implemented is not skipped (RFC 7515, section 4.1.11).';
const BROUGHT = 'The sender does not bring the key that vouches for it (RFC 8725, section 3.10).';
const TWICE = 'Two parsers read two different tokens where a member stands twice.';
const JSON_OBJECT = 'The claims are one JSON object in UTF-8 (RFC 7519, section 7.2).';
const REQUIRED = 'The claim is required.';

const ALPHABET = 'ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_';

const parts = (change: (header: string, claims: string, signature: string) => string) => ({
  token: (token: string): string => {
    const [header = '', claims = '', signature = ''] = token.split('.');
    return change(header, claims, signature);
  },
});

/** The first character becomes another one, so that the bytes differ. */
const flip = (text: string): string =>
  ALPHABET.charAt(ALPHABET.indexOf(text.charAt(0)) ^ 1) + text.slice(1);

const unsigned = (alg: string): object => ({
  header: { alg },
  ...parts((header, claims) => `${header}.${claims}.`),
});

const member = (text: string, json: string): string => `{${text},${json.slice(1)}`;

/** Header and signature: whatever the claims say, nobody else than the issuer has said it. */
const SIGNATURE_PROBES: readonly Probe[] = [
  refused('alg-none', 'alg none, no signature', ALGORITHM, unsigned('none')),
  refused('alg-none-case', 'alg nOnE, no signature', ALGORITHM, unsigned('nOnE')),
  refused('alg-none-signed', 'alg none, with a signature', ALGORITHM, { header: { alg: 'none' } }),
  refused('alg-missing', 'no alg', ALGORITHM, { header: { alg: undefined } }),
  refused('alg-list', 'alg as a list', ALGORITHM, (c) =>
    c.request({ header: { alg: [c.settings.signer.alg] } }),
  ),
  refused('alg-lower-case', 'alg in lower case', ALGORITHM, (c) =>
    c.request({ header: { alg: c.settings.signer.alg.toLowerCase() } }),
  ),
  refused('alg-other-name', 'the name of another algorithm', ALGORITHM, (c) =>
    c.request({ header: { alg: c.settings.signer.alg === 'HS512' ? 'HS256' : 'HS512' } }),
  ),
  refused('alg-other', 'another algorithm with the same secret', ALGORITHM, (c) => {
    const { signer } = c.settings;
    if (signer.withAlgorithm === undefined) return undefined;
    return c.request({ signer: signer.withAlgorithm(signer.alg === 'HS512' ? 'HS256' : 'HS512') });
  }),
  refused('alg-confusion', 'HMAC with the public key as its secret', ALGORITHM, (c) => {
    const { publicPem } = c.settings.signer;
    return publicPem === undefined ? undefined : c.request({ signer: hmacSigner(publicPem) });
  }),
  refused('secret-empty', 'signed with an empty secret', 'Only the key of the issuer signs.', {
    signer: hmacSigner(''),
  }),
  refused('secret-other', 'signed with another secret', 'Only the key of the issuer signs.', {
    signer: hmacSigner('another-secret-that-nobody-has-shared-with-anybody-at-all-0000000'),
  }),
  refused(
    'signature-missing',
    'no signature',
    COVERED,
    parts((h, c) => `${h}.${c}.`),
  ),
  refused(
    'signature-changed',
    'a changed signature',
    COVERED,
    parts((h, c, s) => `${h}.${c}.${flip(s)}`),
  ),
  refused(
    'signature-cut',
    'a signature cut in half',
    COVERED,
    parts((h, c, s) => `${h}.${c}.${s.slice(0, s.length >> 1)}`),
  ),
  refused(
    'signature-longer',
    'a signature with more behind it',
    COVERED,
    parts((h, c, s) => `${h}.${c}.${s}AAAA`),
  ),
  refused('claims-changed', 'changed claims', COVERED, (c) => {
    const claims = { jti: 'somebody-elses' };
    return c.request({
      token: (token) => {
        const [header = '', payload = '', signature = ''] = token.split('.');
        const json = Buffer.from(payload, 'base64url').toString();
        const changed = JSON.stringify({ ...(JSON.parse(json) as object), ...claims });
        return `${header}.${Buffer.from(changed).toString('base64url')}.${signature}`;
      },
    });
  }),
  refused('header-changed', 'a changed header', COVERED, (c) =>
    c.request(
      parts((header, claims, signature) => {
        const json = Buffer.from(header, 'base64url').toString();
        const changed = JSON.stringify({ ...(JSON.parse(json) as object), x: 1 });
        return `${Buffer.from(changed).toString('base64url')}.${claims}.${signature}`;
      }),
    ),
  ),
  refused(
    'padding',
    'a padded signature',
    COMPACT,
    parts((h, c, s) => `${h}.${c}.${s}=`),
  ),
  refused('unused-bits', 'unused bits of the signature', COMPACT, (c) => {
    const last = c.request().authorization[0]!.at(-1)!;
    // Without spare bits the change is one of the signature itself: refused too, for another reason.
    if (ALPHABET.indexOf(last) % 4 !== 0) return undefined;
    return c.request({
      token: (token) => token.slice(0, -1) + ALPHABET.charAt(ALPHABET.indexOf(token.at(-1)!) | 1),
    });
  }),
  refused('standard-alphabet', 'the characters + and /', COMPACT, {
    header: { x: '???>>>~~~' },
    input: (input) => input.replaceAll('-', '+').replaceAll('_', '/'),
  }),
  refused('padded-claims', 'padded claims under a signature that holds', COMPACT, {
    input: (input) => `${input}=`,
  }),
  refused(
    'two-parts',
    'two parts',
    COMPACT,
    parts((h, c) => `${h}.${c}`),
  ),
  refused(
    'four-parts',
    'four parts',
    COMPACT,
    parts((h, c, s) => `${h}.${c}.${s}.${s}`),
  ),
  refused(
    'five-parts',
    'five parts, as of an encrypted token',
    COMPACT,
    parts((h, c, s) => `${h}..${c}.${s}.${s}`),
  ),
  refused(
    'json-serialization',
    'the JSON form of a signature',
    COMPACT,
    parts((h, c, s) => JSON.stringify({ protected: h, payload: c, signature: s })),
  ),
  refused(
    'typ-other',
    'the typ of another kind of token',
    'A token for another purpose is no webhook (RFC 8725, section 3.11).',
    {
      header: { typ: 'at+jwt' },
    },
    TOLERANT,
  ),
  refused('typ-missing', 'no typ', 'typ is required.', { header: { typ: undefined } }, TOLERANT),
  refused(
    'typ-default',
    'typ JWT',
    'typ is exactly SWT.',
    { header: { typ: 'JWT' } },
    { profiles: ['swt-draft-02'] },
  ),
  refused(
    'typ-draft',
    'typ SWT',
    'Formats are never mixed (RFC 8725, section 3.12).',
    { header: { typ: 'SWT' } },
    DEFAULT_ONLY,
  ),
  refused('crit', 'crit', EXTENSION, { header: { crit: ['exp'], exp: 1 } }),
  refused('b64', 'b64 false', EXTENSION, { header: { b64: false } }),
  refused('b64-crit', 'b64 false in crit', EXTENSION, { header: { b64: false, crit: ['b64'] } }),
  refused('zip', 'zip', EXTENSION, { header: { zip: 'DEF' } }, ADVISED),
  refused('jwk', 'a key in the header, and signed with it', BROUGHT, {
    header: { jwk: { kty: 'oct', k: Buffer.from('x'.repeat(32)).toString('base64url') } },
    signer: hmacSigner('x'.repeat(32)),
  }),
  refused('jku', 'the URL of a key in the header', BROUGHT, {
    header: { jku: 'https://keys.invalid/jwks.json' },
    signer: hmacSigner('x'.repeat(32)),
  }),
  refused('kid-unknown', 'a kid nobody has', 'kid is looked up, and never followed.', (c) =>
    c.settings.kid === undefined
      ? undefined
      : c.request({ header: { kid: 'nobodys' }, signer: hmacSigner('') }),
  ),
  refused('kid-path', 'a path as kid, an empty secret', 'kid is looked up, and never followed.', {
    header: { kid: '../../../../dev/null' },
    signer: hmacSigner(''),
  }),
  refused(
    'kid-control',
    'a kid with a control character',
    'kid reaches logs.',
    { header: { kid: 'a\nb' } },
    ADVISED,
  ),
  refused(
    'kid-number',
    'a number as kid',
    'kid is a text (RFC 7515, section 4.1.4).',
    { header: { kid: 7 } },
    ADVISED,
  ),
  refused(
    'header-twice',
    'alg twice',
    TWICE,
    { headerText: (json) => member('"alg":"none"', json) },
    ADVISED,
  ),
  refused('header-list', 'a list as header', 'The header is a JSON object.', {
    headerText: (json) => `[${json}]`,
  }),
];

/** Claims that the issuer itself has signed, and that are wrong. */
const CLAIM_PROBES: readonly Probe[] = [
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

/** What a token says, and who has said it. */
export const TOKEN_PROBES: readonly Probe[] = [...SIGNATURE_PROBES, ...CLAIM_PROBES];
