import type { OpenedRequest } from '../request/open-request.js';
import type { WebhookTokenClaims } from '../token/webhook-claims.interface.js';
import { toleranceOf, type ObservedRequest } from './observed-request.js';
import { expectedHash } from './expected-hash.js';
import { distance, expiry, quote, seconds } from './quote.js';
import type { Refusal } from './refusal.js';
import {
  EXPLANATION_STEPS,
  type ExplanationStep,
  type ExplanationStepName,
} from './webhook-explanation.interface.js';

/** All that the steps are told from. */
interface TraceFacts {
  readonly observed: ObservedRequest;
  /** Absent where the request is accepted. */
  readonly refusal: Refusal | undefined;
  /** Present where the request is accepted. */
  readonly opened: OpenedRequest | undefined;
  /** Present where the token holds, whatever became of the body. */
  readonly claims: WebhookTokenClaims | undefined;
}

type Outcome = Pick<ExplanationStep, 'outcome' | 'detail'>;

const passed = (detail: string): Outcome => ({ outcome: 'passed', detail });
const skipped = (detail: string): Outcome => ({ outcome: 'skipped', detail });

/** Says of every step whether the request got past it. */
export function trace(facts: TraceFacts): readonly ExplanationStep[] {
  const { refusal } = facts;
  return EXPLANATION_STEPS.map((step): ExplanationStep => {
    if (refusal === undefined) return { step, ...TELL[step](facts) };
    if (step === refusal.step) {
      return { step, outcome: 'failed', code: refusal.code, detail: faultOf(facts, refusal) };
    }
    return {
      step,
      ...(isReached(step, refusal, facts.observed)
        ? TELL[step](facts)
        : skipped(`not reached: the request was refused at ${refusal.step}`)),
    };
  });
}

/** The verifier's own order: the method first, then as listed; and a single issuer is compared late. */
function isReached(
  step: ExplanationStepName,
  refusal: Refusal,
  observed: ObservedRequest,
): boolean {
  if (step === 'replay') return false;
  if (refusal.step === 'method' && !refusal.authenticated) return false;
  if (step === 'method') return true;
  if (step === 'key' || step === 'signature') {
    if (refusal.step === 'issuer') return refusal.authenticated;
  }
  if (step === 'issuer' && observed.issuer === undefined) return refusal.authenticated;
  // A digest that cannot be checked, or is missing, is refused before the length is looked at.
  if (step === 'body-length' && refusal.step === 'body-digest') {
    return refusal.code === 'hash_mismatch';
  }
  return EXPLANATION_STEPS.indexOf(step) < EXPLANATION_STEPS.indexOf(refusal.step);
}

/** The verifier's words; before the signature holds they say nothing, and what can be read does. */
function faultOf({ observed }: TraceFacts, { step, message, authenticated }: Refusal): string {
  const { anatomy, issuer, candidates } = observed;
  if (authenticated) return message;
  switch (step) {
    case 'token-form':
      return 'the token is not three non-empty parts joined by dots, or longer than 16384 bytes';
    case 'header':
      return (
        anatomy.headerFault ??
        `typ is ${quote(anatomy.header?.['typ'])}, which this receiver does not take`
      );
    case 'issuer':
      return anatomy.claims === undefined
        ? 'the claims are not one JSON object, so nobody is named whose key could be tried'
        : `iss is ${quote(anatomy.claims['iss'])}, whom this receiver does not trust`;
    case 'key':
      return candidates.length === 0
        ? `no key of ${issuer === undefined ? 'the issuer' : quote(issuer.issuer)} can be tried for ${kidOf(anatomy)}`
        : `the token is signed by ${quote(anatomy.header?.['alg'])}, and no key that can be tried serves it`;
    case 'signature':
      return `the signature holds under none of the ${candidates.length} keys that can be tried`;
    default:
      return message;
  }
}

function kidOf({ header }: ObservedRequest['anatomy']): string {
  const kid = header?.['kid'];
  return kid === undefined ? 'a token without kid' : `kid ${quote(kid)}`;
}

const TELL: Readonly<Record<ExplanationStepName, (facts: TraceFacts) => Outcome>> = {
  authorization: ({ observed }) =>
    passed(`a Bearer token of ${observed.token?.length ?? 0} characters`),
  'token-form': () => passed('three parts'),
  header: ({ observed: { anatomy } }) => {
    const { alg, typ, kid } = anatomy.header ?? {};
    const named = kid === undefined ? 'no kid' : `kid ${quote(kid)}`;
    return passed(
      `alg ${quote(alg)}, ${typ === undefined ? 'no typ' : `typ ${quote(typ)}`}, ${named}`,
    );
  },
  issuer: ({ observed }) => passed(`${quote(observed.anatomy.claims?.['iss'])} is trusted`),
  key: ({ observed: { candidates } }) =>
    passed(
      `${candidates.length === 1 ? '1 key' : `${candidates.length} keys`} of the issuer can be tried`,
    ),
  signature: () => passed('the signature holds'),
  claims: () => passed('the required claims are there'),
  times: tellTimes,
  audience: ({ observed: { anatomy } }) =>
    passed(
      anatomy.claims?.['aud'] === undefined
        ? 'none is named, and none is configured'
        : 'it names this receiver',
    ),
  event: ({ claims }) =>
    passed(`${quote(claims?.webhook.event)} is an event that the issuer may send`),
  method: ({ observed }) => passed(observed.incoming.method),
  'body-length': ({ observed: { body, incoming, rules } }) =>
    incoming.method === 'HEAD'
      ? skipped('HEAD has no body')
      : passed(`${body?.length ?? 0} bytes, of at most ${rules.maxBodyBytes}`),
  'body-digest': ({ observed, claims, opened }) => {
    if (observed.incoming.method === 'HEAD') return skipped('HEAD has no body');
    if (claims !== undefined && expectedHash({ ...claims.webhook }) !== undefined)
      return passed('the body is the one the token names');
    return opened?.payload.bodyVerified === false
      ? skipped('nothing authenticates the body, and this receiver takes it all the same')
      : passed('no body, and no digest of one');
  },
  payload: ({ opened }) => {
    // Nothing comes after it that could refuse, so it is told of accepted requests only.
    const { body, contentType, data } = opened!.payload;
    if (body.length === 0)
      return passed(data === undefined ? 'no data' : 'the data is in the token');
    return passed(
      Buffer.isBuffer(data)
        ? `taken as bytes, as the content type is ${quote(contentType)}`
        : 'JSON that parses',
    );
  },
  replay: () =>
    skipped('a replay store answers only by reserving the id, which an explanation never does'),
};

function tellTimes({ observed }: TraceFacts): Outcome {
  const { iat, exp } = observed.anatomy.claims ?? {};
  const { now } = observed;
  return passed(
    `issued ${distance(now - Number(iat))}, ${expiry(Number(exp) - now)}, tolerance ${seconds(toleranceOf(observed))}`,
  );
}
