import { signWebhookToken } from 'nestjs-webhook-token/token';

/** The meaning of a replica's answer. */
const MEANINGS: Readonly<Record<number, string>> = {
  204: 'handled',
  409: 'being handled elsewhere: come again',
};

/**
 * Sends an event to every replica at once, like a sender that lost an answer and reached another replica.
 *
 * @returns the meaning of each answer
 */
export async function sendToAll(id: string, urls: readonly string[]): Promise<readonly string[]> {
  return Promise.all(
    urls.map(async (url) => {
      // Every request has its own token, with the same event id.
      const token = await signWebhookToken(
        { event: 'parcel.sent', data: { parcel: id }, txn: id },
        { issuer: process.env.SHOP_ISSUER!, key: process.env.SHOP_SECRET! },
      );
      const headers = { authorization: `Bearer ${token}` };
      const answer = await fetch(url, { method: 'HEAD', headers });
      const known = answer.headers.get('webhook-duplicate') !== null;
      return known ? 'known already' : (MEANINGS[answer.status] ?? `${answer.status}`);
    }),
  );
}
