import type { IncomingWebhook } from '../request/incoming-webhook.js';
import { openRequest, type OpenedRequest, type RequestRules } from '../request/open-request.js';
import type { VerifiedWebhookToken } from '../token/webhook-claims.interface.js';
import { type ReceivedReceipt, readReceipt } from '../token/webhook-receipt.js';
import { bodyHints } from './body-hints.js';
import { claimHints } from './claim-hints.js';
import { observe, type ObservedRequest } from './observed-request.js';
import { refusalOf, type Refusal } from './refusal.js';
import { tokenHints } from './token-hints.js';
import { trace } from './trace.js';
import type { WebhookExplanation } from './webhook-explanation.interface.js';

/**
 * Explains why a request is accepted or refused.
 *
 * {@link openRequest} decides; steps and hints are derived from its error and from the request. Nothing is reserved,
 * handled or stored.
 *
 * @throws only errors of the receiver itself, such as a broken key source
 */
export async function explainRequest(
  request: IncomingWebhook,
  rules: RequestRules,
): Promise<WebhookExplanation> {
  const observed = await observe(request, rules);
  const { opened, refusal } = await verify(observed);
  const token = opened?.token ?? (await verifiedToken(observed, refusal));
  const receipt = receiptOfRequest(observed, token, refusal);
  return {
    verdict: refusal === undefined ? 'accepted' : 'refused',
    ...(refusal !== undefined && { code: refusal.code, status: refusal.status }),
    steps: trace({ observed, refusal, opened, claims: token?.claims }),
    hints:
      refusal === undefined
        ? []
        : [
            ...(await tokenHints(observed, refusal)),
            ...claimHints(observed, refusal),
            ...bodyHints(observed, refusal, token?.claims),
          ],
    ...(receipt !== undefined && { receipt }),
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
  try {
    return await rules.tokens.verify(token);
  } catch {
    return undefined;
  }
}

function receiptOfRequest(
  { incoming, body, anatomy, token, repaired }: ObservedRequest,
  verified: VerifiedWebhookToken | undefined,
  refusal: Refusal | undefined,
): ReceivedReceipt | undefined {
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
