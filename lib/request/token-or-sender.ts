import { webhookToken } from './open-request.js';
import type { RequestHeaders, WebhookScheme } from './webhook-scheme.js';

/**
 * Accepts tokens, and requests that another sender signs, for a receiver with `issuers` and `sender`.
 *
 * The token is verified first. If its signature does not hold, for example because its key is gone, the sender's signature may
 * still: whoever can make one valid signature could leave the other one out.
 *
 * @param issuer - the only issuer of the receiver; `undefined` if it may have several, of which the sender could be any
 */
export function tokenOrSender(sender: WebhookScheme, issuer: string | undefined): WebhookScheme {
  const schemeOf = (headers: RequestHeaders): WebhookScheme =>
    webhookToken.hasCredentials(headers) ? webhookToken : sender;
  return {
    name: sender.name,
    challengeMethods: sender.challengeMethods,
    partner: sender.sharesIds === true ? issuer : undefined,
    hasCredentials: (headers) =>
      webhookToken.hasCredentials(headers) || sender.hasCredentials(headers),
    async verify(incoming, rules) {
      const { headers } = incoming;
      if (!webhookToken.hasCredentials(headers)) return sender.verify(incoming, rules);
      try {
        return await webhookToken.verify(incoming, rules);
      } catch (error) {
        const isRead = incoming.body.kind === 'stream' && incoming.body.stream.readableDidRead;
        const isFinal = webhookToken.isAuthenticated(error) || isRead;
        if (isFinal || !sender.hasCredentials(headers)) throw error;
        return sender.verify(incoming, rules);
      }
    },
    isAuthenticated: (error) =>
      webhookToken.isAuthenticated(error) && sender.isAuthenticated(error),
    poll: sender.poll,
    ...(sender.diagnose && { diagnose: (headers, body) => sender.diagnose!(headers, body) }),
    keySets: () => sender.keySets?.() ?? [],
    claims: (incoming) => schemeOf(incoming.headers).claims(incoming),
  };
}
