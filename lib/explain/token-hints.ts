import { findSignature } from './signature-hints.js';
import { isAuthenticatedRefusal } from '../request/open-request.js';
import type { ObservedRequest } from './observed-request.js';
import { quote } from './quote.js';
import type { Refusal } from './refusal.js';
import type { ExplanationHint } from './webhook-explanation.interface.js';

/** Headers to which proxies move the Authorization header. */
const OTHER_HEADERS = [
  'x-forwarded-authorization',
  'x-original-authorization',
  'x-amzn-remapped-authorization',
  'proxy-authorization',
];

/** Hints for a token that is refused before its signature is verified. */
export async function tokenHints(
  observed: ObservedRequest,
  refusal: Refusal,
): Promise<readonly ExplanationHint[]> {
  return [
    ...(refusal.step === 'authorization' ? authorizationHints(observed) : []),
    ...(await damageHints(observed)),
    ...issuerHints(observed, refusal),
    ...keyHints(observed, refusal),
    ...(await signatureHints(observed, refusal)),
  ];
}

function authorizationHints({ incoming: { headers } }: ObservedRequest): ExplanationHint[] {
  if (headers.get('authorization') !== undefined) return [];
  const moved = OTHER_HEADERS.find((name) => headers.get(name) !== undefined);
  return moved === undefined
    ? [
        {
          code: 'authorization_missing',
          detail:
            'no Authorization header arrived: the sender did not set it, or a proxy, gateway or redirect dropped it',
        },
      ]
    : [
        {
          code: 'authorization_moved',
          detail: `there is no Authorization header, but there is ${moved}: a proxy has moved it`,
        },
      ];
}

async function damageHints({ repaired, rules }: ObservedRequest): Promise<ExplanationHint[]> {
  if (repaired === undefined) return [];
  const consequence = (await isSignatureValid(repaired.token, rules))
    ? 'once repaired, the signature is valid'
    : 'even if repaired, the signature is not valid';
  return repaired.damage.map(({ code, detail }) => ({
    code,
    detail: `${detail}; ${consequence}`,
  }));
}

/** A token that the verifier refuses for a later reason has a valid signature. */
async function isSignatureValid(
  token: string,
  { tokens }: ObservedRequest['rules'],
): Promise<boolean> {
  try {
    await tokens.verify(token);
    return true;
  } catch (error) {
    return isAuthenticatedRefusal(error);
  }
}

function issuerHints(
  { anatomy, issuer, trusted }: ObservedRequest,
  refusal: Refusal,
): ExplanationHint[] {
  const iss = anatomy.claims?.['iss'];
  const concerns = ['issuer', 'key', 'signature'].includes(refusal.step);
  if (!concerns || issuer !== undefined || typeof iss !== 'string' || trusted === undefined)
    return [];
  const nearly = spellings(iss).find((one) => trusted.of(one) !== undefined);
  if (nearly !== undefined) {
    return [
      {
        code: 'issuer_nearly',
        detail: `iss is ${quote(iss)}; did you mean ${quote(nearly)}, which is trusted? They must be identical`,
      },
    ];
  }
  return [
    { code: 'issuer_unknown', detail: `iss is ${quote(iss)}, which is not a trusted issuer` },
  ];
}

/** Likely variants of an issuer's name. */
function spellings(iss: string): string[] {
  const plain = iss.trim();
  // Without the lookbehind, many slashes take quadratic time.
  const bare = plain.replace(/(?<!\/)\/+$/, '');
  const scheme = /^https:/i.test(bare)
    ? bare.replace(/^https:/i, 'http:')
    : bare.replace(/^http:/i, 'https:');
  const host = bare.replace(/^https?:\/\//i, '');
  const all = [
    plain,
    bare,
    `${bare}/`,
    scheme,
    `${scheme}/`,
    host,
    `https://${host}`,
    `https://${host}/`,
  ];
  return [...all, ...all.map((one) => one.toLowerCase())].filter((one) => one !== iss);
}

function keyHints(
  { anatomy, candidates, issuer, trusted }: ObservedRequest,
  { step }: Refusal,
): ExplanationHint[] {
  if (step !== 'key') return [];
  const { alg, kid } = anatomy.header ?? {};
  const known = (issuer ?? trusted?.sole)?.known?.() ?? candidates;
  if (candidates.length > 0) {
    const served = [...new Set(known.map((key) => key.alg))].join(', ');
    return [
      {
        code: 'algorithm_mismatch',
        detail: `the token is signed with ${quote(alg)}, but the keys of this issuer are for ${served}: a key has one algorithm`,
      },
    ];
  }
  if (kid !== undefined && known.some((key) => key.kid === kid)) {
    return [
      {
        code: 'key_out_of_window',
        detail: `the issuer's key ${quote(kid)} is not valid at this time: check its notBefore and notAfter`,
      },
    ];
  }
  const names = known
    .flatMap((key) => (key.kid === undefined ? [] : [quote(key.kid)]))
    .slice(0, 10);
  return [
    {
      code: 'kid_unknown',
      detail:
        kid === undefined
          ? 'the token has no kid, and the issuer has more keys than a receiver tries without one'
          : `kid is ${quote(kid)}, but the issuer has ${names.length === 0 ? 'no key with a kid' : `the keys ${names.join(', ')}`}`,
    },
  ];
}

async function signatureHints(
  { anatomy, issuer, trusted, now }: ObservedRequest,
  { step, authenticated }: Refusal,
): Promise<ExplanationHint[]> {
  const alg = anatomy.header?.['alg'];
  if (authenticated || !['issuer', 'key', 'signature'].includes(step)) return [];
  if (anatomy.compact === undefined || trusted === undefined || typeof alg !== 'string') return [];
  const finding = await findSignature(anatomy.compact, alg, issuer ?? trusted.sole, trusted, now);
  switch (finding?.kind) {
    case undefined:
      return [];
    case 'secret':
      return [
        {
          code: 'secret_form',
          detail: `the signature is valid if ${finding.premise}: both sides must use the same bytes`,
        },
      ];
    case 'key':
      return [
        {
          code: 'other_key',
          detail: `the signature is valid with the issuer's key ${finding.kid === undefined ? 'without a kid' : quote(finding.kid)}, which is not the key that the token's kid selects`,
        },
      ];
    case 'issuer':
      return [
        {
          code: 'other_issuer',
          detail: `the signature is valid with a key of ${quote(finding.issuer)}: the sender uses the wrong iss or the wrong key`,
        },
      ];
  }
}
