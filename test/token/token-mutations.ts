import { createHmac, sign, type KeyObject } from 'node:crypto';
import type { Mulberry32 } from './mulberry32.js';

type Members = Record<string, unknown>;

/** The stages of creating a token, each derived from the one before. */
interface Stages {
  readonly header: Members;
  readonly claims: Members;
  readonly headerText: string | Buffer;
  readonly claimsText: string | Buffer;
  readonly headerPart: string;
  readonly claimsPart: string;
  readonly token: string;
}

/** One way to corrupt a token at one stage; later stages are correct. */
export interface Mutation {
  readonly name: string;
  readonly stage: keyof Stages;
  // The type of the value depends on the stage.
  readonly apply: (value: never, random: Mulberry32) => unknown;
}

/** Signs a string: HMAC with a secret, or ES256 with a private key. */
export type Sign = (input: string) => string;

export function signHs256(secret: string): Sign {
  return (input) => createHmac('sha256', secret).update(input).digest('base64url');
}

export function signEs256(key: KeyObject): Sign {
  return (input) =>
    sign('sha256', Buffer.from(input), { key, dsaEncoding: 'ieee-p1363' }).toString('base64url');
}

/** Creates a token with mutations. */
export function forge(
  header: Members,
  claims: Members,
  sign: Sign,
  mutations: readonly Mutation[],
  random: Mulberry32,
): string {
  const at = <Stage extends keyof Stages>(stage: Stage, value: Stages[Stage]): Stages[Stage] =>
    mutations
      .filter((mutation) => mutation.stage === stage)
      .reduce((last, { apply }) => apply(last as never, random) as Stages[Stage], value);
  const encode = (text: string | Buffer): string =>
    Buffer.from(text as string).toString('base64url');
  const headerText = at('headerText', JSON.stringify(at('header', { ...header })));
  const claimsText = at('claimsText', JSON.stringify(at('claims', { ...claims })));
  const input = `${at('headerPart', encode(headerText))}.${at('claimsPart', encode(claimsText))}`;
  return at('token', `${input}.${sign(input)}`);
}

const ALPHABET = 'ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_';
const FOREIGN = [
  '=',
  '\n',
  '\r\n',
  '\t',
  ' ',
  '+',
  '/',
  '.',
  '%',
  '\u0000',
  'é',
  'Ł',
  '\u0141',
  '😀',
];

/** Mutations before the signature, so only the holder of the key can make them. */
export const SIGNED: readonly Mutation[] = [
  header('typ', [
    'jwt',
    'application/JWT',
    'at+jwt',
    'SWT',
    '',
    null,
    1,
    undefined,
    'appl\u0131cation/jwt',
  ]),
  header('alg', [
    'none',
    'HS384',
    'HS512',
    'RS256',
    'ES384',
    'hs256',
    '',
    null,
    undefined,
    ['HS256'],
  ]),
  header('kid', ['k1', '', 'k'.repeat(256), 'k'.repeat(257), 'a\nb', null, 7, {}]),
  header('crit', [[], ['exp'], ['b64'], 'b64', null]),
  header('b64', [true, false, null, 'false']),
  header('zip', ['DEF', null]),
  header('jku', ['https://attacker.example/jwks.json', null, 1]),
  header('jwk', [{ kty: 'oct', k: 'AAAA' }, null, 'x']),
  claim('iss', ['https://bank.example', '', null, 1, [], undefined, 'x'.repeat(256)]),
  claim('jti', ['', null, 1, [], undefined, 'x'.repeat(255), 'x'.repeat(256), 'a\u0000']),
  claim('sub', ['user-1', '', null, 1, 'x'.repeat(256)]),
  claim('txn', ['t-1', '', null, {}]),
  claim('aud', ['https://crm.example', [], ['a', 1], null, '', {}]),
  claim('webhook', [null, [], 'order.created', {}, undefined, { event: 'order' }, { event: 1 }]),
  ...(['exp', 'iat', 'nbf'] as const).map((name) => time(name)),
  webhook('event', ['order.deleted', 'order', '', 'a..b', 'a.b\n', 'a.*', null, 1, undefined]),
  webhook('data', [{}, { a: [[]] }, [], null, 'x', 1, undefined, nested(62), nested(70)]),
  webhook('hash', ['sha256:00', '', null, 1, {}]),
  webhook('retry_count', [0, null, 'x']),
  text('headerText', 'a byte of the header', flipByte),
  text('claimsText', 'a byte of the claims', flipByte),
  text('claimsText', 'a digit of the claims', changeDigit),
  text('headerText', 'a member of the header twice', (json) => `{"typ":"JWT",${json.slice(1)}`),
  text(
    'claimsText',
    'a member of the claims twice',
    (json, random) =>
      `{"${random.pick(['exp', 'iss', 'x":1,"x', '\\u006ati'])}":1,${json.slice(1)}`,
  ),
  text('claimsText', 'a byte order mark', (json) => `\ufeff${json}`),
  text('claimsText', 'a member that replaces a prototype', (json, random) =>
    json.replace('"data":{', `"data":{"${random.pick(['__proto__', '\\u005f_proto__'])}":{},`),
  ),
  text('claimsText', 'white space around the claims', (json, random) =>
    random.pick([` ${json}`, `${json}\n`, `\t${json} `]),
  ),
  text('claimsText', 'a list', (json) => `[${json}]`),
  text('claimsText', 'the claims cut off', (json, random) =>
    json.slice(0, random.below(json.length)),
  ),
  part('headerPart', 'a foreign character in the header'),
  part('claimsPart', 'a foreign character in the claims'),
  // The valid header has a multiple of three bytes, so its last character has no unused bits.
  trail('headerPart', 'the last character of the header'),
  trail('claimsPart', 'unused bits of the claims'),
];

/** Mutations of the finished token, which anyone can make. */
export const UNSIGNED: readonly Mutation[] = [
  unsigned('a character changed', (token, random) => {
    const at = random.below(token.length);
    return token.slice(0, at) + random.pick(ALPHABET.split('')) + token.slice(at + 1);
  }),
  unsigned('a foreign character', (token, random) => {
    const at = random.below(token.length + 1);
    return token.slice(0, at) + random.pick(FOREIGN) + token.slice(at);
  }),
  unsigned('a character left out', (token, random) => {
    const at = random.below(token.length);
    return token.slice(0, at) + token.slice(at + 1);
  }),
  unsigned(
    'something behind',
    (token, random) => token + random.pick([...FOREIGN, 'A', 'AAAA', '.A', '==']),
  ),
  unsigned('something in front', (token, random) => random.pick([...FOREIGN, 'A']) + token),
  unsigned('parts swapped', (token, random) => {
    const parts = token.split('.');
    return [random.pick(parts), random.pick(parts), random.pick(parts)].join('.');
  }),
  unsigned('a part left out', (token, random) => {
    const parts = token.split('.');
    parts.splice(random.below(3), 1, ...random.pick([[], ['']]));
    return parts.join('.');
  }),
  unsigned('a part twice', (token, random) => `${token}.${random.pick(token.split('.'))}`),
  unsigned('unused bits of the signature', (token, random) => unusedBits(token, random)),
  unsigned('the other base64 alphabet', (token) => token.replaceAll('-', '+').replaceAll('_', '/')),
  unsigned('a low-byte twin', (token, random) => {
    const at = random.below(token.length);
    const twin = String.fromCharCode(token.charCodeAt(at) + 0x100 * (1 + random.below(200)));
    return token.slice(0, at) + twin + token.slice(at + 1);
  }),
];

function header(name: string, values: readonly unknown[]): Mutation {
  return set('header', `header ${name}`, name, values);
}

function claim(name: string, values: readonly unknown[]): Mutation {
  return set('claims', `claim ${name}`, name, values);
}

function set(
  stage: 'header' | 'claims',
  label: string,
  name: string,
  values: readonly unknown[],
): Mutation {
  const apply = (members: Members, random: Mulberry32): Members => ({
    ...members,
    [name]: random.pick(values),
  });
  return { name: label, stage, apply };
}

/** Times near the limits of tolerance and lifetime, and invalid values. */
function time(name: 'exp' | 'iat' | 'nbf'): Mutation {
  const odd = [
    null,
    undefined,
    '1760000000',
    0,
    -1,
    1e11,
    1.5,
    1e300,
    true,
    [],
    1_760_000_300.561768,
  ];
  const apply = (claims: Members, random: Mulberry32): Members => {
    const near =
      (claims[name] as number) + random.pick([-3700, -361, -360, -61, -60, 60, 61, 360, 3600]);
    return { ...claims, [name]: random.pick([near + random.below(3) - 1, near, random.pick(odd)]) };
  };
  return { name: `claim ${name}`, stage: 'claims', apply };
}

function webhook(name: string, values: readonly unknown[]): Mutation {
  const apply = (claims: Members, random: Mulberry32): Members =>
    typeof claims['webhook'] === 'object' && claims['webhook'] !== null
      ? { ...claims, webhook: { ...claims['webhook'], [name]: random.pick(values) } }
      : claims;
  return { name: `webhook.${name}`, stage: 'claims', apply };
}

function text(
  stage: 'headerText' | 'claimsText',
  name: string,
  change: (json: string, random: Mulberry32) => string | Buffer,
): Mutation {
  const apply = (json: string | Buffer, random: Mulberry32): string | Buffer =>
    change(json.toString(), random);
  return { name, stage, apply };
}

function part(stage: 'headerPart' | 'claimsPart', name: string): Mutation {
  const apply = (encoded: string, random: Mulberry32): string => {
    const at = random.below(encoded.length + 1);
    return encoded.slice(0, at) + random.pick(FOREIGN) + encoded.slice(at);
  };
  return { name, stage, apply };
}

function trail(stage: 'headerPart' | 'claimsPart', name: string): Mutation {
  return { name, stage, apply: unusedBits };
}

function unsigned(name: string, apply: (token: string, random: Mulberry32) => string): Mutation {
  return { name, stage: 'token', apply };
}

/** Sets unused bits; without unused bits, it changes the last byte instead. */
function unusedBits(encoded: string, random: Mulberry32): string {
  const last = ALPHABET.indexOf(encoded.at(-1) ?? 'A');
  return encoded.slice(0, -1) + ALPHABET.charAt(last ^ (1 + random.below(3)));
}

function flipByte(json: string, random: Mulberry32): Buffer {
  const bytes = Buffer.from(json);
  const at = random.below(bytes.length);
  bytes[at] = bytes[at]! ^ (1 << random.below(8));
  return bytes;
}

function changeDigit(json: string, random: Mulberry32): string {
  const from = random.below(json.length);
  const index = from + Math.max(0, json.slice(from).search(/\d/));
  return json.slice(0, index) + random.pick(['.', 'e', '9', '-', '00']) + json.slice(index + 1);
}

function nested(levels: number): object {
  return levels === 0 ? {} : { a: nested(levels - 1) };
}
