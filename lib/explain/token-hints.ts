import { findSignature } from './signature-hints.js';
import { WebhookTokenError } from '../errors/webhook.error.js';
import type { ObservedRequest } from './observed-request.js';
import { quote } from './quote.js';
import type { Refusal } from './refusal.js';
import type { ExplanationHint } from './webhook-explanation.interface.js';

const BEFORE_SIGNATURE = new Set([
  'missing_token',
  'malformed_authorization',
  'token_too_large',
  'invalid_token',
  'bad_signature',
  'unknown_key',
]);

/** Where a token ends up that was moved to another header by a proxy. */
const OTHER_HEADERS = [
  'x-forwarded-authorization',
  'x-original-authorization',
  'x-amzn-remapped-authorization',
  'proxy-authorization',
];

/** What may have happened to a token that is refused before its signature holds. */
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
            'no Authorization header arrived: the sender left it out, or a proxy, a gateway or a redirect dropped it',
        },
      ]
    : [
        {
          code: 'authorization_moved',
          detail: `there is no Authorization header, but ${moved}: something on the way has moved it`,
        },
      ];
}

async function damageHints({ undone, rules }: ObservedRequest): Promise<ExplanationHint[]> {
  if (undone === undefined) return [];
  const consequence = (await signatureHolds(undone.token, rules))
    ? 'with that undone, the signature holds'
    : 'also with that undone, the signature does not hold';
  return undone.changes.map(({ code, detail }) => ({ code, detail: `${detail}; ${consequence}` }));
}

/** Asks the verifier itself: whatever it finds fault with after the signature, the signature held. */
async function signatureHolds(
  token: string,
  { tokens }: ObservedRequest['rules'],
): Promise<boolean> {
  try {
    await tokens.verify(token);
    return true;
  } catch (error) {
    if (!(error instanceof WebhookTokenError)) return false;
    return (
      error.claim !== undefined ||
      !(BEFORE_SIGNATURE.has(error.code) || error.code === 'wrong_issuer')
    );
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
        detail: `iss is ${quote(iss)}, and trusted is ${quote(nearly)}: they are compared character by character`,
      },
    ];
  }
  return [{ code: 'issuer_unknown', detail: `iss is ${quote(iss)}, which is no trusted issuer` }];
}

/** What one issuer is easily written as. */
function spellings(iss: string): string[] {
  const plain = iss.trim();
  const bare = plain.replace(/\/+$/, '');
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
        detail: `the token is signed by ${quote(alg)}, and the keys of this issuer serve ${served}: a key serves one algorithm`,
      },
    ];
  }
  if (kid !== undefined && known.some((key) => key.kid === kid)) {
    return [
      {
        code: 'key_out_of_window',
        detail: `the issuer has the key ${quote(kid)}, and its time has not come, or is over: see its notBefore and notAfter`,
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
          ? 'the token has no kid, and the issuer has more keys than are tried for such a token'
          : `kid is ${quote(kid)}, and the issuer has ${names.length === 0 ? 'no key with a name' : names.join(', ')}`,
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
          detail: `the signature holds if ${finding.premise}: make both sides take the same bytes for the secret`,
        },
      ];
    case 'key':
      return [
        {
          code: 'other_key',
          detail: `the signature holds under the issuer's key ${finding.kid === undefined ? 'without kid' : quote(finding.kid)}, which the token's kid does not lead to`,
        },
      ];
    case 'issuer':
      return [
        {
          code: 'other_issuer',
          detail: `the signature holds under a key of ${quote(finding.issuer)}: the sender's iss or its key is another one's`,
        },
      ];
  }
}
