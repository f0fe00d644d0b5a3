import type { Forgery } from '../probe.context.js';
import { hmacSigner } from '../probe.signer.js';
import type { Probe } from '../probe.interface.js';
import {
  ADVISED,
  ALL_REFUSED,
  DEFAULT_ONLY,
  DRAFT_02,
  probesOf,
  REPEATED,
  TOLERANT,
  withMember,
} from './define-probe.js';

const probes = probesOf('token');
const { refused } = probes();

const ALGORITHM = 'The key decides the algorithm, never the token (RFC 8725, section 3.1).';
const COMPACT = 'A token is three parts of canonical base64url (RFC 7515, sections 2 and 7.1).';
const COVERED = 'The signature covers header and claims.';
const EXTENSION =
  'An extension that is not implemented must not be ignored (RFC 7515, section 4.1.11).';
const SELECTED = 'kid selects a configured key; it is never a path or URL.';
const OWN_KEY = 'The token must not bring its own key (RFC 8725, section 3.10).';

const ALPHABET = 'ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_';

/** Changes a token that was signed. */
const rewritten = (
  name: string,
  title: string,
  reason: string,
  token: NonNullable<Forgery['token']>,
): Probe => refused(name, title, reason, { token });

/** The header or the claims, with other members. */
const changed = (part: string, members: object): string => {
  const json = JSON.parse(Buffer.from(part, 'base64url').toString()) as object;
  return Buffer.from(JSON.stringify({ ...json, ...members })).toString('base64url');
};

/** Changes the first character, so that the decoded bytes differ. */
const flip = (base64url: string): string =>
  ALPHABET.charAt(ALPHABET.indexOf(base64url.charAt(0)) ^ 1) + base64url.slice(1);

const unsigned = (alg: string): Forgery => ({ header: { alg }, token: (h, c) => `${h}.${c}.` });

/** Header and signature: only the issuer can have made the token. */
export const SIGNATURE_PROBES: readonly Probe[] = [
  refused('alg-none', 'alg none, no signature', ALGORITHM, unsigned('none')),
  refused('alg-none-case', 'alg nOnE, no signature', ALGORITHM, unsigned('nOnE')),
  refused('alg-none-signed', 'alg none, with a signature', ALGORITHM, { header: { alg: 'none' } }),
  refused('alg-missing', 'no alg', ALGORITHM, { header: { alg: undefined } }),
  refused('alg-list', 'alg as an array', ALGORITHM, (c) =>
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
  refused('alg-confusion', 'HMAC with the public key as secret', ALGORITHM, (c) => {
    const { publicPem } = c.settings.signer;
    return publicPem === undefined ? undefined : c.request({ signer: hmacSigner(publicPem) });
  }),
  refused('secret-empty', 'signed with an empty secret', 'Only the issuer has the key.', {
    signer: hmacSigner(''),
  }),
  refused('secret-other', 'signed with another secret', 'Only the issuer has the key.', {
    signer: hmacSigner('another-secret-that-was-never-shared-with-the-receiver-at-all-00000'),
  }),
  rewritten('signature-missing', 'no signature', COVERED, (h, c) => `${h}.${c}.`),
  rewritten(
    'signature-changed',
    'a changed signature',
    COVERED,
    (h, c, s) => `${h}.${c}.${flip(s)}`,
  ),
  rewritten(
    'signature-cut',
    'a signature cut in half',
    COVERED,
    (h, c, s) => `${h}.${c}.${s.slice(0, s.length >> 1)}`,
  ),
  rewritten(
    'signature-longer',
    'a signature with additional bytes',
    COVERED,
    (h, c, s) => `${h}.${c}.${s}AAAA`,
  ),
  rewritten(
    'claims-changed',
    'changed claims',
    COVERED,
    (h, c, s) => `${h}.${changed(c, { jti: 'changed' })}.${s}`,
  ),
  rewritten(
    'header-changed',
    'a changed header',
    COVERED,
    (h, c, s) => `${changed(h, { x: 1 })}.${c}.${s}`,
  ),
  rewritten('padding', 'a padded signature', COMPACT, (h, c, s) => `${h}.${c}.${s}=`),
  probes({ expect: ALL_REFUSED }).refused(
    'unused-bits',
    'unused bits of the signature',
    COMPACT,
    (c) => {
      const signature = c.request().authorization[0]!.split('.')[2]!;
      const variants = { 2: 16, 3: 4 }[signature.length % 4];
      if (variants === undefined) return undefined;
      return Array.from({ length: variants - 1 }, (_, index) =>
        c.request({
          token: (h, c, s) => {
            const last = ALPHABET.charAt(ALPHABET.indexOf(s.at(-1)!) + index + 1);
            return `${h}.${c}.${s.slice(0, -1)}${last}`;
          },
        }),
      );
    },
  ),
  refused('standard-alphabet', 'the characters + and /', COMPACT, {
    header: { x: '???>>>~~~' },
    input: (input) => input.replaceAll('-', '+').replaceAll('_', '/'),
  }),
  refused('padded-claims', 'padded claims with a valid signature', COMPACT, {
    input: (input) => `${input}=`,
  }),
  rewritten('two-parts', 'two parts', COMPACT, (h, c) => `${h}.${c}`),
  rewritten('four-parts', 'four parts', COMPACT, (h, c, s) => `${h}.${c}.${s}.${s}`),
  rewritten(
    'five-parts',
    'five parts, like an encrypted token',
    COMPACT,
    (h, c, s) => `${h}..${c}.${s}.${s}`,
  ),
  rewritten('json-serialization', 'the JSON form of a signature', COMPACT, (h, c, s) =>
    JSON.stringify({ protected: h, payload: c, signature: s }),
  ),
  probes(TOLERANT).refused(
    'typ-other',
    'the typ of another kind of token',
    'A token for another purpose is not a webhook token (RFC 8725, section 3.11).',
    { header: { typ: 'at+jwt' } },
  ),
  probes(TOLERANT).refused('typ-missing', 'no typ', 'typ is required.', {
    header: { typ: undefined },
  }),
  probes(TOLERANT).refused('typ-list', 'typ as an array', 'typ is a string.', (c) =>
    c.request({ header: { typ: [c.profile === 'swt-draft-02' ? 'SWT' : 'JWT'] } }),
  ),
  probes(DRAFT_02).refused('typ-default', 'typ JWT', 'typ must be SWT.', {
    header: { typ: 'JWT' },
  }),
  probes(DEFAULT_ONLY).refused(
    'typ-draft',
    'typ SWT',
    'Wire formats must not be mixed (RFC 8725, section 3.12).',
    { header: { typ: 'SWT' } },
  ),
  refused('crit', 'crit', EXTENSION, { header: { crit: ['exp'], exp: 1 } }),
  refused('b64', 'b64 false', EXTENSION, { header: { b64: false } }),
  refused('b64-crit', 'b64 false in crit', EXTENSION, { header: { b64: false, crit: ['b64'] } }),
  probes(ADVISED).refused('zip', 'zip', EXTENSION, { header: { zip: 'DEF' } }),
  refused('jwk', 'a key in the header that signs the token', OWN_KEY, {
    header: { jwk: { kty: 'oct', k: Buffer.from('x'.repeat(32)).toString('base64url') } },
    signer: hmacSigner('x'.repeat(32)),
  }),
  refused('jku', 'the URL of a key in the header', OWN_KEY, {
    header: { jku: 'https://keys.invalid/jwks.json' },
    signer: hmacSigner('x'.repeat(32)),
  }),
  refused('kid-unknown', 'an unknown kid', SELECTED, (c) =>
    c.settings.kid === undefined ? undefined : c.request({ header: { kid: 'unknown' } }),
  ),
  refused('kid-path', 'a path as kid, signed with an empty secret', SELECTED, {
    header: { kid: '../../../../dev/null' },
    signer: hmacSigner(''),
  }),
  probes(ADVISED).refused(
    'kid-control',
    'a kid with a control character',
    'Receivers log the kid.',
    { header: { kid: 'a\nb' } },
  ),
  probes(ADVISED).refused(
    'kid-number',
    'a number as kid',
    'kid is a string (RFC 7515, section 4.1.4).',
    { header: { kid: 7 } },
  ),
  probes(ADVISED).refused('header-twice', 'alg repeated', REPEATED, {
    headerText: (json) => withMember('"alg":"none"', json),
  }),
  refused('header-list', 'an array as header', 'The header is a JSON object.', {
    headerText: (json) => `[${json}]`,
  }),
];
