import { isWebhookError, type WebhookError } from '../errors/webhook.error.js';
import type {
  IncomingWebhook,
  SenderDiagnosis,
  VerifiedRequest,
  WebhookScheme,
} from '../request/webhook-scheme.js';
import { readSeconds } from '../token/validate-claims.js';
import { FIRST_MILLISECOND_TIMESTAMP } from '../token/webhook-token.constants.js';
import { findBodyVariant } from './body-hints.js';
import { addAudienceHint } from './claim-hints.js';
import type { ExplainedRules } from './explain-request.js';
import { takeBody } from './observed-request.js';
import { distance, expiry, quote, seconds } from './quote.js';
import {
  type Refusal,
  refusalByDefinition,
  STEP_OF_CLAIM,
  STEP_OF_CODE,
  statusOf,
} from './refusal.js';
import { addMovedHint, addSecretHint } from './token-hints.js';
import { describeDefinition, describeSteps, passed, UNRESERVED } from './trace.js';
import type {
  AddHint,
  ExplanationHint,
  ExplanationStepName,
  WebhookExplanation,
} from './webhook-explanation.interface.js';

type SenderRules = ExplainedRules & { readonly scheme: WebhookScheme };

/** The checks of a sender that signs the body, in order. */
const SIGNATURE_STEPS: readonly ExplanationStepName[] = [
  'method',
  'authorization',
  'times',
  'body-length',
  'signature',
  'payload',
  'definition',
  'replay',
];
/** Those of one that sends a JSON Web Token. */
const TOKEN_STEPS: readonly ExplanationStepName[] = [
  'method',
  'authorization',
  'token-form',
  'header',
  'key',
  'signature',
  'issuer',
  'times',
  'audience',
  'claims',
  'body-length',
  'body-digest',
  'payload',
  'definition',
  'replay',
];

type SenderRefusal = Pick<Refusal, 'code' | 'status' | 'message' | 'step'>;

/** What is known of a request of a sender. */
interface ObservedSender {
  readonly request: IncomingWebhook;
  /** Absent if it could not be read. */
  readonly body: Buffer | undefined;
  readonly diagnosis: SenderDiagnosis;
  /** Seconds since the epoch. */
  readonly now: number;
}

/**
 * Explains a request to a receiver with a `sender`, as {@link explainRequest} does for tokens. The scheme of the sender decides; hints
 * are found by trying what it would accept.
 */
export async function explainSender(
  request: IncomingWebhook,
  rules: SenderRules,
  reason: WebhookError | undefined,
): Promise<WebhookExplanation> {
  const { source, body } = await takeBody(request.body, rules.maxBodyBytes);
  const incoming = { ...request, body: source };
  const diagnosis = rules.scheme.diagnose!(request.headers, body);
  const steps = diagnosis.token === undefined ? SIGNATURE_STEPS : TOKEN_STEPS;
  const { events, error: found } = await verify(incoming, rules);
  const error = found?.code === 'payload_consumed' ? (reason ?? found) : found;
  const refusal = error === undefined ? await byDefinition(events, rules) : refusalOf(error, steps);
  const observed: ObservedSender = {
    request,
    body,
    diagnosis,
    now: readSeconds(rules.tokens.settings.now),
  };
  const hints: ExplanationHint[] = [];
  if (refusal !== undefined) {
    const add: AddHint = (code, detail) => void hints.push({ code, detail });
    addHeaderHint(observed, refusal, add);
    addTimeHint(observed, refusal, add);
    addClaimHints(observed, refusal, add);
    if (refusal.code === 'invalid_signature' || refusal.code === 'hash_mismatch') {
      addSignatureHint(observed, rules, add);
    }
  }
  return {
    verdict: refusal === undefined ? 'accepted' : 'refused',
    ...(refusal && { code: refusal.code, status: refusal.status }),
    steps: describeSteps(
      steps,
      refusal,
      (step) => {
        if (step === 'replay') return UNRESERVED;
        if (step !== 'definition') return passed(detailOf(step, observed, events));
        const names = events.map(({ claims }) => claims.webhook.event);
        return describeDefinition(names, rules.events);
      },
      (step) => steps.indexOf(step) < steps.indexOf(refusal!.step),
    ),
    hints,
  };
}

/** @throws errors of the receiver itself */
async function verify(
  incoming: IncomingWebhook,
  rules: SenderRules,
): Promise<{ readonly events: readonly VerifiedRequest[]; readonly error?: WebhookError }> {
  try {
    const verified = await rules.scheme.verify(incoming, rules);
    if ('claims' in verified) return { events: [verified] };
    const items = 'batch' in verified ? verified.batch : [];
    const events = items.map((item) => {
      if ('error' in item) throw item.error;
      return item;
    });
    return { events };
  } catch (error) {
    if (isWebhookError(error)) return { events: [], error };
    throw error;
  }
}

async function byDefinition(
  events: readonly VerifiedRequest[],
  rules: SenderRules,
): Promise<SenderRefusal | undefined> {
  for (const event of events) {
    const refusal = await refusalByDefinition(event, rules);
    if (refusal !== undefined) return refusal;
  }
  return undefined;
}

function refusalOf(error: WebhookError, steps: readonly ExplanationStepName[]): SenderRefusal {
  const { code, message } = error;
  const { claim = '' } = error as { claim?: string };
  const ofClaim = code === 'invalid_claim' || code === 'missing_claim';
  const step = ofClaim
    ? (STEP_OF_CLAIM[claim] ?? 'claims')
    : (STEP_OF_CODE[code] ?? (code === 'invalid_token' ? 'header' : 'key'));
  // A sender without this step checks it with the body.
  return { code, message, status: statusOf(code), step: steps.includes(step) ? step : 'payload' };
}

function detailOf(
  step: ExplanationStepName,
  { request, body, diagnosis, now }: ObservedSender,
  events: readonly VerifiedRequest[],
): string {
  const { timestamp, tolerance, headers } = diagnosis;
  if (step === 'method') return request.method;
  if (step === 'authorization' && headers.length > 0) {
    return `the request has ${headers.join(' or ')}`;
  }
  if (step === 'times' && timestamp !== undefined) {
    return `signed ${distance(now - timestamp)}, tolerance ${seconds(tolerance)}`;
  }
  if (step === 'body-length') return `${body?.length ?? 0} bytes`;
  if (step === 'payload' && events.length > 0) {
    return events
      .slice(0, 10)
      .map(({ claims }) => `${quote(claims.webhook.event)}, id ${quote(claims.jti)}`)
      .join('; ');
  }
  return 'nothing to object to';
}

/** Headers of signatures, by their usual names. */
const KNOWN_HEADERS = [
  'webhook-signature',
  'svix-signature',
  'stripe-signature',
  'x-hub-signature-256',
  'x-slack-signature',
  'x-shopify-hmac-sha256',
  'x-zm-signature',
  'paddle-signature',
  'x-signature',
  'upstash-signature',
  'plaid-verification',
];

function addHeaderHint(
  { request: { headers }, diagnosis }: ObservedSender,
  { code }: SenderRefusal,
  add: AddHint,
): void {
  if (code !== 'missing_signature' && code !== 'missing_token') return;
  const missing = diagnosis.headers.filter((name) => headers.get(name) === undefined);
  // Another header is missing, such as that of the time, which the step names.
  if (missing.length < diagnosis.headers.length) return;
  if (missing.includes('authorization')) addMovedHint(headers, add);
  const others = KNOWN_HEADERS.filter(
    (name) => headers.get(name) !== undefined && !diagnosis.headers.includes(name),
  );
  const names = diagnosis.headers.join(' or ');
  add(
    'signature_missing',
    others.length > 0
      ? `this receiver expects ${names}, but the request has ${others.join(' and ')}: it is from another sender, or was sent to the wrong path`
      : `this receiver expects ${names === '' ? 'a credential' : names}: the sender did not set it, for example because it has no secret, or a proxy dropped it`,
  );
}

function addTimeHint(
  { diagnosis: { timestamp, tolerance, token }, now }: ObservedSender,
  { code, step }: SenderRefusal,
  add: AddHint,
): void {
  if (timestamp === undefined || token !== undefined) return;
  if (timestamp >= FIRST_MILLISECOND_TIMESTAMP) {
    add('milliseconds', 'the signed time is in milliseconds: use seconds');
    return;
  }
  const past = now - timestamp;
  if (code !== 'timestamp_out_of_tolerance') {
    if (step === 'signature') add('signature_age', `signed ${distance(past)} (unverified)`);
    return;
  }
  const over = seconds(Math.abs(past) - tolerance);
  add(
    past > 0 ? 'clock_behind' : 'clock_ahead',
    `signed ${distance(past)}, ${over} more than the tolerance of ${seconds(tolerance)}: ${
      past > 0
        ? "the sender's clock is behind, or the request arrived late or was sent again"
        : "the sender's clock is ahead of this receiver's"
    }`,
  );
}

function addClaimHints(
  { diagnosis: { token, tolerance }, now }: ObservedSender,
  { code, step }: SenderRefusal,
  add: AddHint,
): void {
  const { header, claims } = token ?? {};
  if (token === undefined || claims === undefined) return;
  const { iss, aud, iat, exp } = claims;
  if (step === 'times') {
    const times = [
      ...(typeof iat === 'number' ? [`issued ${distance(now - iat)}`] : []),
      ...(typeof exp === 'number' ? [expiry(exp - now)] : []),
    ];
    add('token_age', `${times.join(', ')}; the clock tolerance is ${seconds(tolerance)}`);
  }
  if (code === 'wrong_issuer') {
    const expected = (token.issuers ?? []).map(quote).join(' or ');
    add('issuer_unknown', `iss is ${quote(iss)}; this sender must have ${expected}`);
  }
  if (code === 'wrong_audience') {
    addAudienceHint(aud, token.audience, 'set the option "audience" of the sender', add);
  }
  if (code === 'unknown_key') {
    add('kid_unknown', `kid is ${quote(header?.['kid'])}, and the sender has no such key`);
  }
}

/** Bytes up to which other signatures are computed. */
const MAX_TRIED_BYTES = 4 * 1024 * 1024;

/** Finds why the signature, or the digest in a token, does not hold. */
function addSignatureHint(
  { body, diagnosis, request: { headers } }: ObservedSender,
  { scheme, receivers = [] }: SenderRules,
  add: AddHint,
): void {
  if (body === undefined || body.length > MAX_TRIED_BYTES) return;
  const { holdsFor, holdsWith, variants = [] } = diagnosis;
  const variant = variants.find((one) => holds(() => one.holdsFor(body)));
  if (variant !== undefined) {
    add(
      variant.code,
      `the signature is valid if ${variant.premise}: compare with how the sender signs`,
    );
    return;
  }
  if (addSecretHint((change) => holds(() => holdsWith?.(change, body) ?? false), add)) return;
  const other = [...receivers].find(
    (one) =>
      one.scheme !== scheme &&
      holds(() => one.scheme.diagnose?.(headers, body).holdsFor?.(body) ?? false),
  );
  if (other !== undefined) {
    add(
      'other_receiver',
      `the signature is valid with a secret of receiver ${quote(other.name)}: the two secrets or paths are mixed up`,
    );
    return;
  }
  const found = holdsFor && findBodyVariant(body, (bytes) => holdsFor(bytes));
  if (found !== undefined)
    add(found.code, `the signature is that of ${found.form}: ${found.cause}`);
}

/** A variant may not fit the request at all. */
function holds(attempt: () => boolean): boolean {
  try {
    return attempt();
  } catch {
    return false;
  }
}
