import { signWebhookToken } from 'nestjs-webhook-token/token';

/** The meaning of each status code. */
const MEANINGS: Readonly<Record<number, string>> = {
  204: 'handled',
  409: 'being handled elsewhere: come again',
};

/**
 * Sends an event to every replica at once, like a sender that retries at another replica after a lost answer.
 *
 * @returns the meaning of each answer
 */
export async function sendToAll(id: string, urls: readonly string[]): Promise<readonly string[]> {
  return Promise.all(
    urls.map(async (url) => {
      // Each request has its own token; all carry the same event id.
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
