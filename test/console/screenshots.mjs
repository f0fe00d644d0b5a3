// Takes the screenshots of the documentation, and with a folder as argument those of every page, on desktop and phone, in both
// schemes: npm run screenshots [-- FOLDER]
import { mkdir } from 'node:fs/promises';
import { join } from 'node:path';
import { fileURLToPath } from 'node:url';
import { HttpService } from '@nestjs/axios';
import { NestFactory } from '@nestjs/core';
import { chromium } from 'playwright-core';
import { WebhookConsoleModule, WebhookPortal } from '../../dist/console/index.js';
import {
  defineEvents,
  InProcessQueue,
  OnWebhookEvent,
  WebhookEndpoints,
  WebhookModule,
  WebhookPublisher,
} from '../../dist/index.js';
import { deliverWebhook, InMemoryWebhookTransport, TestClock } from '../../dist/testing/index.js';

const MINUTE = 60_000;
const SECRET = 'a-shared-secret-of-the-shop-with-32-bytes';
const STEPS = 48;
process.env.NODE_ENV = 'test';
const clock = new TestClock(Date.now() - STEPS * 30 * MINUTE);
// The same pictures every time.
let seed = 7;
const random = () => (seed = (seed * 16_807) % 2_147_483_647) / 2_147_483_647;

/** How the receivers answer, from the step at which they start to fail. */
const failures = {
  'warehouse.acme.example': { from: 39, reply: () => 503 },
  'crm.globex.example': { from: 44, reply: () => 'ETIMEDOUT' },
  'billing.globex.example': { from: 46, reply: () => 'CERT_HAS_EXPIRED' },
};
let step = 0;
const transport = new InMemoryWebhookTransport(({ url }) => {
  const failure = failures[new URL(url).hostname];
  if (failure !== undefined && step >= failure.from) return failure.reply();
  return random() < 0.02 ? 500 : 204;
});

class Orders {
  receive(order) {
    if (order?.total === 0) throw new RangeError('total must be above 0');
  }
}
OnWebhookEvent('order.*')(
  Orders.prototype,
  'receive',
  Object.getOwnPropertyDescriptor(Orders.prototype, 'receive'),
);

const defined = defineEvents({
  'order.created': {
    description: 'A customer has placed an order.',
    examples: [{ id: 'o-1', customer: 'Ada', total: 4_200 }],
    jsonSchema: { type: 'object', required: ['id'], properties: { id: { type: 'string' } } },
  },
  'order.paid': { description: 'An order is paid in full.', examples: [{ id: 'o-1' }] },
  'order.shipped': { description: 'An order has left the warehouse.', version: '2' },
  'invoice.created': { description: 'An invoice was made.', deprecated: 'Use invoice.sent.' },
});

const portal = { url: 'http://localhost/webhooks/portal', secret: 'p'.repeat(32) };
const capabilities = ['view', 'view-payload', 'redeliver', 'manage-endpoints', 'manage-secrets'];
const retry = { attempts: 2, schedule: ['0s', '5m'], jitter: 0 };
const app = await NestFactory.create(
  {
    module: class Shop {},
    imports: [
      WebhookModule.forRoot({
        clock,
        events: defined,
        inbox: { headers: true, payload: true },
        httpModule: {
          module: class Http {},
          providers: [{ provide: HttpService, useValue: transport }],
          exports: [HttpService],
        },
        receiver: {
          path: 'webhooks',
          issuers: [{ issuer: 'https://payments.example', secret: SECRET }],
          acknowledge: 'queued',
          queue: new InProcessQueue({ clock }),
          retry: { ...retry, schedule: ['0s', '1m'] },
        },
        publisher: {
          issuer: 'https://shop.example',
          secret: SECRET,
          queue: new InProcessQueue({ clock }),
          retry,
          allowedAddresses: ['0.0.0.0/0'],
        },
      }),
      WebhookConsoleModule.forRoot({
        capabilities: [...capabilities, 'share', 'erase'],
        actor: () => 'maria@shop.example',
        brand: { name: 'Shop webhooks' },
        portal,
      }),
    ],
    providers: [Orders],
  },
  { logger: false },
);
await app.init();
const endpoints = app.get(WebhookEndpoints);
for (const [tenant, id, description] of [
  ['acme', 'acme-warehouse', 'Warehouse'],
  ['acme', 'acme-erp', 'ERP'],
  ['globex', 'globex-crm', 'CRM'],
  ['globex', 'globex-billing', 'Billing'],
  ['globex', 'globex-analytics', 'Analytics'],
]) {
  const [, name] = id.split('-');
  const url = `https://${name}.${tenant}.example/webhooks`;
  const onDead = id === 'acme-warehouse' ? 'block' : 'skip';
  await endpoints.create({
    id,
    tenant,
    url,
    description,
    onDead,
    events: ['order.*', 'invoice.*'],
  });
}
const publisher = app.get(WebhookPublisher);
const events = ['order.created', 'order.paid', 'order.shipped', 'invoice.created'];
for (; step < STEPS; step++) {
  if (step === STEPS - 2) await endpoints.pause('globex-analytics');
  const count = 3 + Math.floor(random() * 5 + 3 * Math.sin(step / 6) ** 2);
  for (let n = 0; n < count; n++) {
    const data = { id: `o-${step}-${n}`, customer: 'Ada', total: 4_200, paid: n % 2 === 0 };
    const tenant = random() < 0.5 ? 'acme' : 'globex';
    const event = events[n % events.length];
    const order = event === 'invoice.created' ? { orderingKey: `account-${tenant}` } : {};
    await publisher.publish(event, data, { tenant, ...order });
    await clock.advance((30 * MINUTE) / count);
  }
}
const issuer = 'https://payments.example';
const signed = { issuer, secret: SECRET, clock };
await deliverWebhook(app, 'order.paid', { id: 'p-1', total: 4_200 }, signed);
await deliverWebhook(app, 'order.paid', { id: 'p-2', total: 0 }, signed);
const other = { ...signed, secret: 'another-secret-that-has-32-bytes-or-more' };
await deliverWebhook(app, 'order.paid', { id: 'p-3', total: 10 }, other);
await clock.advance(2 * MINUTE);
await app.listen(0, '127.0.0.1');
const origin = `http://127.0.0.1:${app.getHttpServer().address().port}`;
const api = async (path) => (await fetch(`${origin}/webhooks/console/api/${path}`)).json();
const firstId = async (path) => encodeURIComponent((await api(path)).items[0].id);

const { items: blocked } = await api('endpoints/acme-warehouse/blocked-keys');

const PAGES = {
  overview: '',
  deliveries: '#/deliveries',
  missed: '#/deliveries?status=dead&endpoint=acme-warehouse&last=24h',
  delivery: `#/deliveries/${await firstId('deliveries?status=dead')}`,
  tenant: '#/deliveries?tenant=globex&keyState=waiting',
  'blocking-delivery': `#/deliveries/${encodeURIComponent(blocked[0].deliveryId)}`,
  endpoints: '#/endpoints',
  endpoint: '#/endpoints/acme-warehouse',
  events: '#/event-types',
  inbox: '#/inbox',
  refused: `#/inbox/${await firstId('inbox?kind=refused')}`,
  'dead-letters': '#/dead-letters',
  'dead-letter': `#/dead-letters/${await firstId('dead-letters')}`,
  activity: '#/activity',
};
const SIZES = { desktop: { width: 1280, height: 800 }, phone: { width: 390, height: 844 } };

const folder = process.argv[2];
if (folder !== undefined) await mkdir(folder, { recursive: true });
const browser = await chromium.launch({
  executablePath: process.env.CHROMIUM ?? '/usr/bin/chromium',
  args: ['--no-sandbox', '--disable-gpu', '--disable-background-networking', '--disable-sync'],
});
try {
  for (const colorScheme of ['light', 'dark']) {
    for (const [size, viewport] of Object.entries(SIZES)) {
      const page = await browser.newPage({ colorScheme, viewport });
      const take = async (name, path, fullPage) => {
        await page.goto(`${origin}/webhooks/${path}`);
        await page.reload();
        await page.getByRole('heading', { level: 1 }).waitFor();
        await page.locator('.skeleton').first().waitFor({ state: 'detached' });
        const file = join(folder ?? '', `${name}-${size}-${colorScheme}.png`);
        await page.screenshot({ path: file, fullPage });
      };
      if (folder !== undefined) {
        for (const [name, hash] of Object.entries(PAGES)) await take(name, `console/${hash}`, true);
        await page.goto(`${origin}/webhooks/console/#/endpoints`);
        await page.getByRole('button', { name: 'Add endpoint' }).click();
        await page.getByLabel('Every event').uncheck();
        await page.getByLabel('order.created').check();
        await page.getByLabel('Filter').fill('{ "data": { "total": { "$gte": 100 } } }');
        await page.getByText('The example of order.created matches.').waitFor();
        await page.screenshot({ path: join(folder, `form-${size}-${colorScheme}.png`) });
        await page.getByText('Limits and credentials').click();
        await page.getByLabel('Besides the signature').selectOption('oauth2');
        await page.getByLabel('Client secret').scrollIntoViewIfNeeded();
        await page.screenshot({ path: join(folder, `credentials-${size}-${colorScheme}.png`) });
        const link = { tenant: 'globex', displayName: 'Globex GmbH', capabilities, language: 'de' };
        const { hash } = app.get(WebhookPortal).link(link);
        await page.goto(`${origin}/webhooks/portal/${hash}`);
        await page.getByText('Webhooks von Globex GmbH').waitFor();
        await take('portal', 'portal/', true);
      } else if (size === 'desktop') {
        await page.goto(`${origin}/webhooks/console/`);
        await page.locator('.rows').first().waitFor();
        const file = fileURLToPath(
          new URL(`../../docs/guides/console-${colorScheme}.png`, import.meta.url),
        );
        await page.screenshot({ path: file });
      }
      await page.close();
    }
  }
} finally {
  await browser.close();
  await app.close();
}
