import { isWebhookError, type WebhookError } from '../errors/webhook.error.js';
import type { EndpointEditor } from './endpoint.editor.js';
import type { EndpointStore, StoredEndpoint } from './endpoint-store.js';
import type { SecretSealer } from './secret-sealer.js';

const PAGE = 100;

/**
 * Has every secret of a store sealed with the key that seals now.
 *
 * @returns how many endpoints were changed
 * @throws {@link WebhookStoreError} `sealed_secret_unreadable`, after all others
 */
export async function resealAll(
  store: EndpointStore,
  sealer: SecretSealer,
  editor: EndpointEditor,
): Promise<number> {
  const isStale = ({ keys }: StoredEndpoint): boolean =>
    !keys.every((key) => sealer.isCurrent(key));
  let resealed = 0;
  let unreadable: WebhookError | undefined;
  for (let after: string | undefined; ;) {
    const page = await store.list({ after, limit: PAGE });
    for (const { id } of page.filter(isStale)) {
      try {
        const { changed } = await editor.change(id, undefined, {
          make: (current) => {
            if (!isStale(current)) return undefined;
            for (const key of current.keys) sealer.open(id, key);
            return current;
          },
        });
        if (changed) resealed++;
      } catch (error) {
        if (isWebhookError(error, 'sealed_secret_unreadable')) unreadable ??= error;
        else if (!isWebhookError(error, 'unknown_endpoint')) throw error;
      }
    }
    if (page.length < PAGE) break;
    after = page.at(-1)!.id;
  }
  if (unreadable !== undefined) throw unreadable;
  return resealed;
}
