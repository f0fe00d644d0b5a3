import type { WebhookEventCatalog } from '../events/event-catalog.js';
import type { VerifiedRequest } from '../request/webhook-scheme.js';
import type { WebhookTokenClaims } from '../token/webhook-claims.interface.js';
import { toleranceOf, type ObservedRequest } from './observed-request.js';
import { expectedHash } from './body-hints.js';
import { distance, expiry, quote, seconds } from './quote.js';
import type { Refusal } from './refusal.js';
import {
  EXPLANATION_STEPS,
  type ExplanationStep,
  type ExplanationStepName,
} from './webhook-explanation.interface.js';

interface TraceFacts {
  readonly observed: ObservedRequest;
  /** Absent if the request is accepted. */
  readonly refusal: Refusal | undefined;
  /** Present if the request is accepted, or refused by the definition of its event. */
  readonly opened: VerifiedRequest | undefined;
  /** Present if the token is valid, even if the body is not. */
  readonly claims: WebhookTokenClaims | undefined;
  /** Absent without defined events. */
  readonly events: WebhookEventCatalog | undefined;
}

type Outcome = Pick<ExplanationStep, 'outcome' | 'detail'>;

export const passed = (detail: string): Outcome => ({ outcome: 'passed', detail });
const skipped = (detail: string): Outcome => ({ outcome: 'skipped', detail });
export const UNRESERVED = skipped('not checked: checking would reserve the id');

export function trace(facts: TraceFacts): readonly ExplanationStep[] {
  const { refusal, observed } = facts;
  return describeSteps(
    EXPLANATION_STEPS,
    refusal && { ...refusal, message: describeFailure(facts, refusal) },
    (step) => DESCRIBE[step](facts),
    (step) => isReached(step, refusal!, observed),
  );
}

/** @param isReached - called for each other step if the request was refused */
export function describeSteps(
  steps: readonly ExplanationStepName[],
  refusal: Pick<Refusal, 'step' | 'code' | 'message'> | undefined,
  describe: (step: ExplanationStepName) => Outcome,
  isReached: (step: ExplanationStepName) => boolean,
): readonly ExplanationStep[] {
  return steps.map((step): ExplanationStep => {
    if (refusal === undefined) return { step, ...describe(step) };
    const { step: refusedAt, code, message: detail } = refusal;
    if (step === refusedAt) return { step, outcome: 'failed', code, detail };
    if (isReached(step)) return { step, ...describe(step) };
    return { step, ...skipped(`not reached: the request was refused at ${refusedAt}`) };
  });
}

/** The verifier checks the method first, and a single issuer only after its signature. */
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
  // A missing or unsupported digest is refused before the length is checked.
  if (step === 'body-length' && refusal.step === 'body-digest') {
    return refusal.code === 'hash_mismatch';
  }
  return EXPLANATION_STEPS.indexOf(step) < EXPLANATION_STEPS.indexOf(refusal.step);
}

/** The verifier's message; before the signature is verified it is unspecific, so the token's parts are described instead. */
function describeFailure(
  { observed }: TraceFacts,
  { step, message, authenticated }: Refusal,
): string {
  const { anatomy, issuer, candidates } = observed;
  if (authenticated) return message;
  switch (step) {
    case 'token-form':
      return 'the token is not three parts joined by dots, or is longer than 16384 bytes';
    case 'header':
      return (
        anatomy.headerProblem ??
        `typ is ${quote(anatomy.header?.['typ'])}, which this receiver does not accept`
      );
    case 'issuer':
      return anatomy.claims === undefined
        ? 'the claims are not a JSON object, so they name no issuer'
        : `iss is ${quote(anatomy.claims['iss'])}, which this receiver does not trust`;
    case 'key':
      return candidates.length === 0
        ? `${issuer === undefined ? 'the issuer' : quote(issuer.issuer)} has no key for ${kidOf(anatomy)}`
        : `the token is signed with ${quote(anatomy.header?.['alg'])}, but no key of the issuer has this algorithm`;
    case 'signature':
      return `the signature is not valid with ${candidates.length === 1 ? 'the key' : `any of the ${candidates.length} keys`} of the issuer`;
    default:
      return message;
  }
}

function kidOf({ header }: ObservedRequest['anatomy']): string {
  const kid = header?.['kid'];
  return kid === undefined ? 'a token without a kid' : `kid ${quote(kid)}`;
}

const DESCRIBE: Readonly<Record<ExplanationStepName, (facts: TraceFacts) => Outcome>> = {
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
      `the issuer has ${candidates.length === 1 ? '1 matching key' : `${candidates.length} matching keys`}`,
    ),
  signature: () => passed('the signature is valid'),
  claims: () => passed('all required claims are present'),
  times: describeTimes,
  audience: ({ observed: { anatomy } }) =>
    passed(
      anatomy.claims?.['aud'] === undefined
        ? 'the token names none, and none is configured'
        : 'the token names this receiver',
    ),
  event: ({ claims }) => passed(`the issuer may send ${quote(claims?.webhook.event)}`),
  method: ({ observed }) => passed(observed.incoming.method),
  'body-length': ({ observed: { body, incoming, rules } }) =>
    incoming.method === 'HEAD'
      ? skipped('HEAD has no body')
      : passed(`${body?.length ?? 0} bytes, of at most ${rules.maxBodyBytes}`),
  'body-digest': ({ observed, claims, opened }) => {
    if (observed.incoming.method === 'HEAD') return skipped('HEAD has no body');
    if (claims !== undefined && expectedHash({ ...claims.webhook }) !== undefined)
      return passed('the body matches the hash in the token');
    return opened?.bodyVerified === false
      ? skipped('no hash covers the body, which this receiver accepts (requireHash: false)')
      : passed('no body and no hash');
  },
  payload: ({ opened }) => {
    // Only the definition is checked later, and it needs an opened request.
    const { body, contentType, data } = opened!;
    if (body.length === 0)
      return passed(data === undefined ? 'no data' : 'the data is in the token');
    return passed(
      Buffer.isBuffer(data) ? `bytes of the content type ${quote(contentType)}` : 'valid JSON',
    );
  },
  definition: ({ claims, events }) => describeDefinition([claims?.webhook.event ?? ''], events),
  replay: () => UNRESERVED,
};

/** @param names - of the events in the request */
export function describeDefinition(
  names: readonly string[],
  events: WebhookEventCatalog | undefined,
): Outcome {
  if (events === undefined) return skipped('no definitions of events are known here');
  if (names.length === 0) return skipped('the request contains no event');
  const all = [...new Set(names)];
  const checked = all.filter((name) => events.checks(name));
  return checked.length > 0
    ? passed(`the data is valid data of ${checked.map(quote).join(', ')}`)
    : skipped(`no definition checks the data of ${all.map(quote).join(', ')}`);
}

function describeTimes({ observed }: TraceFacts): Outcome {
  const { iat, exp } = observed.anatomy.claims ?? {};
  const { now } = observed;
  return passed(
    `issued ${distance(now - Number(iat))}, ${expiry(Number(exp) - now)}, clock tolerance ${seconds(toleranceOf(observed))}`,
  );
}
