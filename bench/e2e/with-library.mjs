import { WebhookDeliveryEvents, WebhookPublisher } from '../../dist/index.js';
import { openQueue } from '../../test/fixtures/durable-queues.mjs';
import { EVENT } from '../send/settings.mjs';
import { application } from '../send/with-publisher.mjs';
import { CONCURRENCY } from './settings.mjs';

export async function openLibrary({ engine, place, url, event: { method, data }, onDelivered }) {
  const limits = { concurrency: CONCURRENCY, concurrencyPerDestination: CONCURRENCY };
  const queue = await openQueue(
    engine,
    engine === 'memory' ? { maxPending: 1e6, ...limits } : { ...place, ...limits },
  );
  const app = await application(url, method, { queue });
  app.get(WebhookDeliveryEvents).events$.subscribe(({ type }) => {
    if (type === 'delivered') onDelivered();
  });
  const publisher = app.get(WebhookPublisher);
  return { publish: async () => publisher.publish(EVENT, data), close: async () => app.close() };
}
