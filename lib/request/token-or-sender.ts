import { webhookToken } from './open-request.js';
import type { IncomingWebhook, WebhookScheme } from './webhook-scheme.js';

/**
 * Accepts tokens, and requests that another sender signs, for a receiver with `issuers` and `sender`.
 *
 * The token is verified first. If its signature does not hold, for example because its key is gone, the sender's signature may
 * still: a sender that can make one valid signature could leave the other one out.
 *
 * @param issuer - the only issuer of the receiver; `undefined` if it may have several, of which the sender could be any
 */
export function tokenOrSender(sender: WebhookScheme, issuer: string | undefined): WebhookScheme {
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
    partner: sender.sharesIds === true ? issuer : undefined,
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
