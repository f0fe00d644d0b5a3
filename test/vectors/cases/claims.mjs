import { AUDIENCE, claims, NOW, token, withWebhook } from '../forge.mjs';
import { accepted, BY_DEFAULT, refused } from '../vector.mjs';

export function claimSets() {
  return [...members(), ...identifiers(), ...audiences(), ...events(), ...data(), ...forms()];
}

function members() {
  const required = ['webhook', 'iss', 'exp', 'iat', 'jti'];
  const numbers = ['exp', 'iat', 'nbf'];
  const notNumbers = Object.entries({
    'a string': `${NOW}`,
    null: null,
    'a boolean': true,
    'a list': [NOW],
    'an object': {},
  });
  return [
    ...required.map((name) =>
      refused(
        `${name} missing`,
        'missing_claim',
        `${name} is required.`,
        token(claims({ [name]: undefined })),
      ),
    ),
    accepted('nbf missing', 'nbf is optional.', token(claims({ nbf: undefined }))),
    ...numbers.flatMap((name) =>
      notNumbers.map(([kind, value]) =>
        refused(
          `${name} ${kind}`,
          'invalid_claim',
          `${name} is a whole number of seconds.`,
          token(claims({ [name]: value })),
        ),
      ),
    ),
    ...Object.entries({
      null: null,
      'a list': [{ event: 'order.created' }],
      'a string': 'order.created',
      'a number': 1,
    }).map(([kind, value]) =>
      refused(
        `webhook ${kind}`,
        'invalid_claim',
        'webhook is an object.',
        token(claims({ webhook: value })),
      ),
    ),
    accepted(
      'unknown members',
      'Unknown members are ignored.',
      token(claims({ scope: 'a b', webhook: { event: 'order.created', retry_count: 2 } })),
      { payload: 'none' },
    ),
    accepted(
      'a registered claim this profile does not use',
      'Unknown members are ignored.',
      token(claims({ azp: 'x', nonce: 1 })),
    ),
  ];
}

const UNSAFE_CHARACTERS = {
  'a delete character': '\u007f',
  'the first C1 control character': '\u0080',
  'a C1 control sequence introducer': '\u009b',
  'the last C1 control character': '\u009f',
  'a line separator': '\u2028',
  'a paragraph separator': '\u2029',
  'a right-to-left override': '\u202e',
  'a left-to-right isolate': '\u2066',
};

const LONE_SURROGATES = {
  'a high surrogate at its end': 'a\ud800',
  'another high surrogate at its end': 'a\ud801',
  'a low surrogate at its beginning': '\udc00a',
  'surrogates the wrong way round': 'a\ude00\ud83d',
};

function identifiers() {
  return [
    ...['iss', 'jti'].flatMap((name) =>
      Object.entries({
        null: null,
        'a number': 1,
        'a list': ['x'],
        empty: '',
        'with a newline': 'a\nb',
        'with a null character': 'a\u0000b',
        'of 256 characters': 'x'.repeat(256),
      }).map(([kind, value]) =>
        refused(
          `${name} ${kind}`,
          'invalid_claim',
          `${name} is a string of 1 to 255 characters without control characters.`,
          token(claims({ [name]: value })),
        ),
      ),
    ),
    ...['iss', 'jti', 'sub', 'txn'].flatMap((name) => [
      ...Object.entries(UNSAFE_CHARACTERS).map(([kind, character]) =>
        refused(
          `${name} with ${kind}`,
          'invalid_claim',
          `${name} is logged, and has no control characters, bidirectional controls and line separators.`,
          token(claims({ [name]: `a${character}b` })),
        ),
      ),
      ...Object.entries(LONE_SURROGATES).map(([kind, text]) =>
        refused(
          `${name} with ${kind}`,
          'invalid_claim',
          `${name} is compared, and as UTF-8 all lone surrogates are the same character.`,
          token(claims({ [name]: text })),
        ),
      ),
    ]),
    ...['sub', 'txn'].flatMap((name) => [
      accepted(
        `${name} a string`,
        `${name} is optional, and a string of 1 to 255 characters.`,
        token(claims({ [name]: 'x' })),
      ),
      refused(
        `${name} a number`,
        'invalid_claim',
        `${name} is a string of 1 to 255 characters.`,
        token(claims({ [name]: 1 })),
      ),
      refused(
        `${name} empty`,
        'invalid_claim',
        `${name} is a string of 1 to 255 characters.`,
        token(claims({ [name]: '' })),
      ),
      refused(
        `${name} null`,
        'invalid_claim',
        `${name} is a string of 1 to 255 characters.`,
        token(claims({ [name]: null })),
      ),
    ]),
    accepted(
      'jti of 255 characters',
      'jti is a string of 1 to 255 characters.',
      token(claims({ jti: 'x'.repeat(255) })),
    ),
    accepted(
      'jti outside ASCII',
      'jti is any well-formed string without control characters and line separators.',
      token(claims({ jti: 'Größe-\u6f22-\ud83d\ude00' })),
    ),
  ];
}

function audiences() {
  const expecting = (audience) => ({ verifier: { ...BY_DEFAULT, audience } });
  const addressed = (aud) => token(claims({ aud }));
  const mine = expecting(AUDIENCE);
  const rule = 'A token with aud names this receiver.';
  return [
    accepted('aud is this receiver', rule, addressed(AUDIENCE), mine),
    accepted(
      'aud is a list with this receiver',
      rule,
      addressed(['https://x.example', AUDIENCE]),
      mine,
    ),
    accepted(
      'aud is one of several of this receiver',
      rule,
      addressed(AUDIENCE),
      expecting(['https://x.example', AUDIENCE]),
    ),
    refused('aud is another', 'wrong_audience', rule, addressed('https://x.example'), mine),
    refused(
      'aud is a list of others',
      'wrong_audience',
      rule,
      addressed(['https://x.example', 'https://y.example']),
      mine,
    ),
    refused(
      'aud in other case',
      'wrong_audience',
      'aud is compared exactly.',
      addressed(AUDIENCE.toUpperCase()),
      mine,
    ),
    refused(
      'aud begins with this receiver',
      'wrong_audience',
      'aud is compared exactly.',
      addressed(`${AUDIENCE}/a`),
      mine,
    ),
    refused(
      'aud missing where one is configured',
      'wrong_audience',
      'Who is configured by name wants to be named.',
      addressed(undefined),
      mine,
    ),
    refused(
      'aud where none is configured',
      'wrong_audience',
      'A token with aud is for the named receivers only (RFC 7519, 4.1.3).',
      addressed(AUDIENCE),
    ),
    refused('aud empty', 'wrong_audience', rule, addressed(''), mine),
    refused(
      'aud an empty list',
      'invalid_claim',
      'aud is a string or a list of strings.',
      addressed([]),
      mine,
    ),
    refused(
      'aud a list with a number',
      'invalid_claim',
      'aud is a string or a list of strings.',
      addressed([AUDIENCE, 1]),
      mine,
    ),
    refused(
      'aud null',
      'invalid_claim',
      'aud is a string or a list of strings.',
      addressed(null),
      mine,
    ),
    refused(
      'aud an object',
      'invalid_claim',
      'aud is a string or a list of strings.',
      addressed({ 0: AUDIENCE }),
      mine,
    ),
    refused(
      'aud a number, none configured',
      'invalid_claim',
      'aud is a string or a list of strings.',
      addressed(1),
    ),
  ];
}

function events() {
  const announcing = (event) => token(withWebhook({ event }));
  const rule =
    'An event is two or more segments of letters, digits, "_" and "-", joined by dots, at most 128 characters.';
  const right = [
    'a.b',
    'order.item.created',
    'Order.Created',
    'order_v2.item-created',
    '0.1',
    '-.-',
    `a.${'b'.repeat(126)}`,
  ];
  const wrong = [
    'order',
    '.created',
    'order.',
    'order..created',
    'order.created.',
    'order created.x',
    'order.*',
    '**',
    'order/created.x',
    'order.created\n',
    ' order.created',
    'ordér.created',
    'order.crea\u200bted',
    '',
    `a.${'b'.repeat(127)}`,
  ];
  const none = { payload: 'none' };
  return [
    ...right.map((event) => accepted(`event ${shown(event)}`, rule, announcing(event), none)),
    ...wrong.map((event) =>
      refused(`event ${shown(event)}`, 'invalid_claim', rule, announcing(event)),
    ),
    refused('event missing', 'missing_claim', 'webhook.event is required.', announcing(undefined)),
    refused('event null', 'invalid_claim', 'webhook.event is a string.', announcing(null)),
    refused(
      'event a list',
      'invalid_claim',
      'webhook.event is a string.',
      announcing(['order.created']),
    ),
    refused('event a number', 'invalid_claim', 'webhook.event is a string.', announcing(1.5)),
  ];
}

function shown(event) {
  return JSON.stringify(event.length > 40 ? `${event.slice(0, 4)}…(${event.length})` : event);
}

function data() {
  const carrying = (value) => token(withWebhook({ data: value }));
  const json = (text) =>
    token(`{"webhook":{"event":"order.created","data":${text}},${restOfClaims()}`);
  const pollution = 'A member that replaces a prototype is refused.';
  return [
    accepted('data empty', 'data is an object, an empty one too.', carrying({})),
    accepted(
      'data nested',
      'data is free-form.',
      carrying({ a: [{ b: null, c: [1.5, 'x', true] }] }),
    ),
    accepted(
      'data with characters outside ASCII',
      'The claims are UTF-8.',
      carrying({ name: 'Grüße \u6f22\u5b57 \ud83d\ude00' }),
    ),
    accepted(
      'data with a member twice',
      'Only header, claims and webhook are searched for members that stand twice.',
      json('{"a":1,"a":2}'),
    ),
    ...Object.entries({
      'a list': [1],
      null: null,
      'a string': '{}',
      'a number': 1,
      'a boolean': false,
    }).map(([kind, value]) =>
      refused(`data ${kind}`, 'invalid_claim', 'data is an object.', carrying(value)),
    ),
    accepted(
      'data of 64 levels',
      'data nests at most 64 levels, itself included.',
      json(nested(64)),
    ),
    refused(
      'data of 65 levels',
      'invalid_claim',
      'data nests at most 64 levels, itself included.',
      json(nested(65)),
    ),
    refused(
      'data of 65 levels of lists',
      'invalid_claim',
      'data nests at most 64 levels, itself included.',
      json(`{"a":${'['.repeat(64)}${']'.repeat(64)}}`),
    ),
    accepted(
      'brackets in a string',
      'Brackets in a string are no levels.',
      carrying({ a: `${'['.repeat(80)}\\"${'{'.repeat(80)}` }),
    ),
    refused('__proto__ in data', 'invalid_claim', pollution, json('{"__proto__":{"admin":true}}')),
    refused(
      '__proto__ deep in data',
      'invalid_claim',
      pollution,
      json('{"a":[{"b":{"__proto__":{}}}]}'),
    ),
    refused(
      '__proto__ escaped',
      'invalid_claim',
      pollution,
      json('{"\\u005f\\u005fproto\\u005f_":{"admin":true}}'),
    ),
    refused(
      'constructor.prototype in data',
      'invalid_claim',
      pollution,
      json('{"constructor":{"prototype":{"admin":true}}}'),
    ),
    refused(
      'constructor.prototype escaped',
      'invalid_claim',
      pollution,
      json('{"c\\u006fnstructor":{"prot\\u006ftype":{}}}'),
    ),
    refused(
      '__proto__ in the claims',
      'invalid_claim',
      pollution,
      token(`{"__proto__":{"webhook":{}},${JSON.stringify(claims()).slice(1)}`),
    ),
    refused(
      '__proto__ that would inherit webhook',
      'invalid_claim',
      pollution,
      token(`{"__proto__":${JSON.stringify({ webhook: claims().webhook })},${restOfClaims()}`),
    ),
    accepted(
      'constructor as an ordinary member',
      'Only constructor with a prototype in it replaces one.',
      json('{"constructor":"ACME Builders"}'),
    ),
    accepted(
      '__proto__ as a value',
      'A value is not a member.',
      carrying({ note: '__proto__ and constructor.prototype' }),
    ),
  ];
}

function nested(levels) {
  return `${'{"a":'.repeat(levels - 1)}{}${'}'.repeat(levels - 1)}`;
}

function restOfClaims() {
  const { webhook: _, ...rest } = claims();
  return JSON.stringify(rest).slice(1);
}

function forms() {
  const text = JSON.stringify(claims());
  const rule = 'The claims are one JSON object in UTF-8.';
  const twice = 'The claims and webhook have no duplicate members.';
  return [
    accepted(
      'claims with white space',
      'JSON may be written with white space.',
      token(JSON.stringify(claims(), null, 2)),
    ),
    accepted(
      'an escaped name',
      'An escaped name is the same name.',
      token(text.replace('"jti"', '"\\u006ati"')),
    ),
    refused('claims as a list', 'invalid_token', rule, token(`[${text}]`)),
    refused('claims null', 'invalid_token', rule, token('null')),
    refused('claims a number', 'invalid_token', rule, token('1')),
    refused('claims no JSON', 'invalid_token', rule, token('{iss:"x"}')),
    refused('claims cut off', 'invalid_token', rule, token(text.slice(0, -1))),
    refused('claims followed by text', 'invalid_token', rule, token(`${text},`)),
    refused('claims with a byte order mark', 'invalid_token', rule, token(`\ufeff${text}`)),
    refused(
      'claims with NaN',
      'invalid_token',
      rule,
      token(text.replace('"total":42', '"total":NaN')),
    ),
    refused('claims in UTF-16', 'invalid_token', rule, token(Buffer.from(text, 'utf16le'))),
    refused(
      'claims not UTF-8',
      'invalid_token',
      rule,
      token(Buffer.from(text.replace('o-1', '\xff'), 'latin1')),
    ),
    refused(
      'claims with an overlong encoding',
      'invalid_token',
      rule,
      token(Buffer.from(text.replace('o-1', '\xc0\xaf'), 'latin1')),
    ),
    refused(
      'claims with a surrogate in UTF-8',
      'invalid_token',
      rule,
      token(Buffer.from(text.replace('o-1', '\xed\xa0\x80'), 'latin1')),
    ),
    refused('exp twice', 'invalid_claim', twice, token(`{"exp":1,${text.slice(1)}`)),
    refused(
      'exp twice, once escaped',
      'invalid_claim',
      twice,
      token(`{"\\u0065xp":1,${text.slice(1)}`),
    ),
    refused(
      'exp twice, the same',
      'invalid_claim',
      twice,
      token(`{"exp":${NOW + 300},${text.slice(1)}`),
    ),
    refused(
      'webhook twice',
      'invalid_claim',
      twice,
      token(`{"webhook":{"event":"order.deleted"},${text.slice(1)}`),
    ),
    refused(
      'event twice',
      'invalid_claim',
      twice,
      token(text.replace('"event":', '"event":"order.deleted","event":')),
    ),
    refused(
      'event twice, once escaped',
      'invalid_claim',
      twice,
      token(text.replace('"event":', '"\\u0065vent":"order.deleted","event":')),
    ),
    refused(
      'data twice, webhook escaped',
      'invalid_claim',
      twice,
      token(text.replace('"webhook"', '"webh\\u006fok"').replace('"data":', '"data":{},"data":')),
    ),
    refused(
      'an unknown claim twice',
      'invalid_claim',
      twice,
      token(`{"x":1,"x":2,${text.slice(1)}`),
    ),
    accepted(
      'a value that looks like a member',
      'A value is not a member.',
      token(claims({ sub: 'jti', azp: '"jti":' })),
    ),
  ];
}
