import { signWebhookToken } from 'nestjs-webhook-token/token';

/** What a replica answers, in a word. */
const MEANINGS: Readonly<Record<number, string>> = {
  204: 'handled',
  409: 'being handled elsewhere: come again',
};

/**
 * Sends an event to every replica at once, as a sender does that lost an answer and was then sent elsewhere.
 *
 * @returns what each has answered
 */
export async function sendToAll(id: string, urls: readonly string[]): Promise<readonly string[]> {
  return Promise.all(
    urls.map(async (url) => {
      // A token of its own for every request, and in each the same id of the event.
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
