import { claims, NOW, token } from '../forge.mjs';
import { accepted, BY_DEFAULT, refused } from '../vector.mjs';

const EXP = NOW + 300;
const TOLERANCE = 60;

export function times() {
  const at = (now, verifier = BY_DEFAULT) => ({ now, verifier });
  const strict = { ...BY_DEFAULT, clockTolerance: 0 };
  const lived = (seconds) => token(claims({ exp: NOW + seconds }));
  const written = (name, value) =>
    token(JSON.stringify(claims()).replace(new RegExp(`"${name}":\\d+`), `"${name}":${value}`));
  const expires = 'now < exp + clockTolerance.';
  const begins = 'nbf <= now + clockTolerance.';
  const issued = 'iat <= now + clockTolerance.';
  const fraction = 'A time may have a fraction (RFC 7519, section 2).';
  const late = claims({ nbf: NOW + 100 });
  const early = claims({ nbf: undefined });
  return [
    accepted('at exp', expires, token(), at(EXP)),
    accepted('one second before exp and tolerance', expires, token(), at(EXP + TOLERANCE - 1)),
    refused('at exp and tolerance', 'token_expired', expires, token(), at(EXP + TOLERANCE)),
    refused(
      'one second after exp and tolerance',
      'token_expired',
      expires,
      token(),
      at(EXP + TOLERANCE + 1),
    ),
    accepted(
      'a fraction before exp and tolerance',
      `${expires} The clock may give fractions.`,
      token(),
      at(EXP + TOLERANCE - 0.5),
    ),
    accepted('no tolerance, one second before exp', expires, token(), at(EXP - 1, strict)),
    refused('no tolerance, at exp', 'token_expired', expires, token(), at(EXP, strict)),
    refused(
      'no tolerance, one second after exp',
      'token_expired',
      expires,
      token(),
      at(EXP + 1, strict),
    ),
    accepted(
      'widest tolerance',
      expires,
      token(),
      at(EXP + 299, { ...BY_DEFAULT, clockTolerance: 300 }),
    ),
    accepted('nbf at now and tolerance', begins, token(late), at(NOW + 100 - TOLERANCE)),
    accepted(
      'nbf one second before now and tolerance',
      begins,
      token(late),
      at(NOW + 100 - TOLERANCE + 1),
    ),
    refused(
      'nbf one second after now and tolerance',
      'token_not_yet_valid',
      begins,
      token(late),
      at(NOW + 100 - TOLERANCE - 1),
    ),
    accepted('no tolerance, nbf at now', begins, token(late), at(NOW + 100, strict)),
    refused(
      'no tolerance, nbf one second ahead',
      'token_not_yet_valid',
      begins,
      token(late),
      at(NOW + 99, strict),
    ),
    accepted('iat at now and tolerance', issued, token(early), at(NOW - TOLERANCE)),
    accepted(
      'iat one second before now and tolerance',
      issued,
      token(early),
      at(NOW - TOLERANCE + 1),
    ),
    refused(
      'iat one second after now and tolerance',
      'token_not_yet_valid',
      issued,
      token(early),
      at(NOW - TOLERANCE - 1),
    ),
    refused(
      'iat in the future, nbf in the past',
      'token_not_yet_valid',
      issued,
      token(claims({ nbf: NOW - 500 })),
      at(NOW - TOLERANCE - 1),
    ),
    accepted(
      'nbf before iat',
      'nbf only has to lie in the past.',
      token(claims({ nbf: NOW - 500 })),
    ),
    refused('exp at iat', 'invalid_claim', 'iat < exp.', lived(0)),
    refused('exp one second before iat', 'invalid_claim', 'iat < exp.', lived(-1)),
    accepted('exp one second after iat', 'iat < exp.', lived(1)),
    accepted('lifetime of an hour', 'exp - iat <= maxTokenLifetime.', lived(3_600)),
    accepted(
      'lifetime of a second less than an hour',
      'exp - iat <= maxTokenLifetime.',
      lived(3_599),
    ),
    refused(
      'lifetime of a second more than an hour',
      'token_too_old',
      'exp - iat <= maxTokenLifetime.',
      lived(3_601),
    ),
    refused(
      'lifetime of ten years',
      'token_too_old',
      'exp - iat <= maxTokenLifetime.',
      lived(315_360_000),
    ),
    accepted('a longer lifetime, configured', 'exp - iat <= maxTokenLifetime.', lived(86_400), {
      verifier: { ...BY_DEFAULT, maxTokenLifetime: 86_400 },
    }),
    refused(
      'a shorter lifetime, configured',
      'token_too_old',
      'exp - iat <= maxTokenLifetime.',
      lived(301),
      { verifier: { ...BY_DEFAULT, maxTokenLifetime: 300 } },
    ),
    ...['exp', 'iat', 'nbf'].flatMap((name) => [
      refused(
        `${name} in milliseconds`,
        'invalid_claim',
        'A value from 1e11 on is milliseconds by mistake.',
        written(name, `${NOW}000`),
      ),
      refused(
        `${name} 1e11`,
        'invalid_claim',
        'A value from 1e11 on is milliseconds by mistake.',
        written(name, '1e11'),
      ),
      accepted(`${name} with a fraction`, fraction, written(name, `${NOW}.561768`)),
      refused(
        `${name} negative`,
        'invalid_claim',
        'Times are seconds since the epoch.',
        written(name, '-1'),
      ),
      refused(
        `${name} 1e400`,
        'invalid_claim',
        'A number beyond the range is infinite to many parsers, and never expires.',
        written(name, '1e400'),
      ),
    ]),
    accepted(
      'a fractional exp, just before it',
      fraction,
      token(claims({ exp: EXP + 0.5 })),
      at(EXP + 0.25, strict),
    ),
    refused(
      'at a fractional exp',
      'token_expired',
      fraction,
      token(claims({ exp: EXP + 0.5 })),
      at(EXP + 0.5, strict),
    ),
    refused(
      'just before a fractional nbf',
      'token_not_yet_valid',
      fraction,
      token(claims({ nbf: NOW + 0.5 })),
      at(NOW + 0.25, strict),
    ),
    refused(
      'a fraction more than an hour',
      'token_too_old',
      'exp - iat <= maxTokenLifetime.',
      lived(3_600.5),
    ),
    refused(
      'milliseconds with a fraction',
      'invalid_claim',
      'A value from 1e11 on is milliseconds by mistake.',
      written('exp', `${EXP}000.5`),
    ),
    accepted(
      'exp written as 1760000300.0',
      'The value counts, not how it is written.',
      written('exp', `${EXP}.0`),
    ),
    accepted(
      'exp written as 17600003e2',
      'The value counts, not how it is written.',
      written('exp', '17600003e2'),
    ),
    refused(
      'everything in milliseconds',
      'invalid_claim',
      'A value from 1e11 on is milliseconds by mistake.',
      token(claims({ iat: NOW * 1_000, nbf: NOW * 1_000, exp: EXP * 1_000 })),
    ),
  ];
}
