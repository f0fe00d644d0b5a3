import { checkContentType } from './body.js';
import { requireAllowedEvent, webhookToken } from './open-request.js';
import type { IncomingWebhook, WebhookScheme } from './webhook-scheme.js';

/**
 * Accepts tokens, and requests that another sender signs, for a receiver with `issuers` and `sender`.
 *
 * The token is verified first. If its signature does not hold, for example because its key is gone, the sender's signature may
 * still: a sender that can make one valid signature could leave the other one out.
 *
 * @param given - the scheme of the sender
 * @param issuer - the only issuer of the receiver; `undefined` if it may have several, of which the sender could be any
 */
export function tokenOrSender(given: WebhookScheme, issuer: string | undefined): WebhookScheme {
  const partner = given.sharesIds === true ? issuer : undefined;
  const sender = partner === undefined ? given : withRulesOf(partner, given);
  /** Requests whose token did not hold, so that the sender's scheme verified them. */
  const fallenBack = new WeakSet<IncomingWebhook>();
  const schemeOf = (incoming: IncomingWebhook): WebhookScheme => {
    const { method, headers } = incoming;
    if (webhookToken.hasCredentials(headers))
      return fallenBack.has(incoming) ? sender : webhookToken;
    // Only tokens come by HEAD. The sender's scheme would answer that the method is not allowed.
    return method === 'HEAD' && !sender.hasCredentials(headers) ? webhookToken : sender;
  };
  return {
    name: sender.name,
    challengeMethods: sender.challengeMethods,
    fallback: sender,
    credentialHeaders: sender.credentialHeaders,
    partner,
    hasCredentials: (headers) =>
      webhookToken.hasCredentials(headers) || sender.hasCredentials(headers),
    async verify(incoming, rules) {
      const { headers } = incoming;
      const scheme = schemeOf(incoming);
      try {
        return await scheme.verify(incoming, rules);
      } catch (error) {
        const isRead = incoming.body.kind === 'stream' && incoming.body.stream.readableDidRead;
        const isFinal = scheme === sender || webhookToken.isAuthenticated(error) || isRead;
        if (isFinal || !sender.hasCredentials(headers)) throw error;
        fallenBack.add(incoming);
        return sender.verify(incoming, rules);
      }
    },
    answer: (given, incoming) => schemeOf(incoming).answer?.(given, incoming),
    isAuthenticated: (error) =>
      webhookToken.isAuthenticated(error) && sender.isAuthenticated(error),
    poll: sender.poll,
    diagnose: sender.diagnose && ((headers, body) => sender.diagnose!(headers, body)),
    checkKeySets: () => sender.checkKeySets?.() ?? [],
    claims: (incoming) => schemeOf(incoming).claims(incoming),
  };
}

/** The scheme of a sender that signs in the name of an issuer, and so may send what that issuer may. */
function withRulesOf(partner: string, sender: WebhookScheme): WebhookScheme {
  return {
    ...sender,
    async verify(incoming, rules) {
      const verified = await sender.verify(incoming, rules);
      const contentTypes = rules.issuers?.contentTypesOf(partner);
      for (const event of 'batch' in verified ? verified.batch : [verified]) {
        if (!('claims' in event)) continue;
        requireAllowedEvent(rules, partner, event.claims.webhook.event);
        if (contentTypes !== undefined && event.body.length > 0) {
          checkContentType(incoming, contentTypes);
        }
      }
      return verified;
    },
  };
}
