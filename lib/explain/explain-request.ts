import type { WebhookError } from '../errors/webhook.error.js';
import type { WebhookEventCatalog } from '../events/event-catalog.js';
import type { IncomingWebhook, RequestRules, WebhookScheme } from '../request/webhook-scheme.js';
import { type OpenedRequest, openRequest, webhookToken } from '../request/open-request.js';
import type { VerifiedWebhookToken } from '../token/webhook-claims.interface.js';
import { readReceipt } from '../token/webhook-receipt.js';
import { addBodyHints } from './body-hints.js';
import { addClaimHints } from './claim-hints.js';
import { explainSender } from './explain-sender.js';
import { attempt, observe, type ObservedRequest } from './observed-request.js';
import { refusalByDefinition, refusalOf, type Refusal } from './refusal.js';
import { addTokenHints } from './token-hints.js';
import { trace } from './trace.js';
import type {
  AddHint,
  ExplanationHint,
  WebhookExplanation,
} from './webhook-explanation.interface.js';

/** The rules of a receiver, and the events that its application has defined, if it is known which. */
export interface ExplainedRules extends RequestRules {
  /** Default: tokens. */
  readonly scheme?: WebhookScheme | undefined;
  /** Whether tokens are accepted beside those of the scheme. */
  readonly takesTokens?: boolean | undefined;
  /** The receivers of the application, one of which a request may have been meant for. */
  readonly receivers?:
    Iterable<{ readonly name: string; readonly scheme: WebhookScheme }> | undefined;
  readonly events?: WebhookEventCatalog | undefined;
}

/**
 * Explains why a request is accepted or refused.
 *
 * {@link openRequest} or the scheme decides, and then the definition of the event; steps and hints are derived from the error and from the
 * request. Nothing is reserved, handled or stored.
 *
 * @param reason - why the request was refused, if its body has been read and is gone: then this decides about the body
 * @throws only errors of the receiver itself, such as a broken key source
 */
export async function explainRequest(
  request: IncomingWebhook,
  rules: ExplainedRules,
  reason?: WebhookError,
): Promise<WebhookExplanation> {
  const { scheme, takesTokens = false } = rules;
  const isToken = takesTokens && webhookToken.hasCredentials(request.headers);
  if (scheme?.diagnose !== undefined && !isToken) {
    return explainSender(request, { ...rules, scheme }, reason);
  }
  const observed = await observe(request, rules);
  const { opened, refusal: found } = await verify(observed);
  const fallback = isToken && found?.authenticated === false ? scheme?.fallback : undefined;
  if (fallback?.diagnose !== undefined && fallback.hasCredentials(request.headers)) {
    return explainSender(observed.incoming, { ...rules, scheme: fallback }, reason);
  }
  const isGone = found?.code === 'payload_consumed' && reason !== undefined;
  const requestRefusal = isGone ? refusalOf(reason, observed) : found;
  const refusal = requestRefusal ?? (await refusalByDefinition(opened, rules));
  const token = opened ?? (await verifiedToken(observed, refusal));
  const hints: ExplanationHint[] = [];
  if (refusal !== undefined) {
    const add: AddHint = (code, detail) => void hints.push({ code, detail });
    await addTokenHints(observed, refusal, add);
    addClaimHints(observed, refusal, add);
    if (token !== undefined) addBodyHints(observed, refusal, token.claims, add);
  }
  return {
    verdict: refusal === undefined ? 'accepted' : 'refused',
    code: refusal?.code,
    status: refusal?.status,
    steps: trace({ observed, refusal, opened, claims: token?.claims, events: rules.events }),
    hints,
    receipt: receiptOfRequest(observed, token, refusal),
  };
}

async function verify(observed: ObservedRequest): Promise<{
  readonly opened?: OpenedRequest;
  readonly refusal?: Refusal;
}> {
  try {
    return { opened: await openRequest(observed.incoming, observed.rules) };
  } catch (error) {
    return { refusal: refusalOf(error, observed) };
  }
}

/** The verified token of a request that was refused for another reason. */
async function verifiedToken(
  { token, rules }: ObservedRequest,
  refusal: Refusal | undefined,
): Promise<VerifiedWebhookToken | undefined> {
  if (token === undefined || refusal?.authenticated !== true) return undefined;
  return attempt(async () => rules.tokens.verify(token));
}

function receiptOfRequest(
  { incoming, body, anatomy, token, repaired }: ObservedRequest,
  verified: Pick<VerifiedWebhookToken, 'profile'> | undefined,
  refusal: Refusal | undefined,
): WebhookExplanation['receipt'] {
  const compact = token ?? repaired?.token;
  if (compact === undefined || anatomy.claims === undefined) return undefined;
  return {
    ...readReceipt(compact, {
      method: incoming.method,
      bodyBytes: incoming.method === 'HEAD' ? 0 : (body?.length ?? 0),
      contentType: incoming.headers.get('content-type'),
      profile: verified?.profile,
    }),
    authenticated: refusal === undefined || refusal.authenticated,
  };
}
