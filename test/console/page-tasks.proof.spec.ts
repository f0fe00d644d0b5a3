import { execFileSync } from 'node:child_process';
import { once } from 'node:events';
import { createServer } from 'node:http';
import type { AddressInfo } from 'node:net';
import type { INestApplication } from '@nestjs/common';
import { ExpressAdapter } from '@nestjs/platform-express';
import { afterAll, afterEach, beforeAll, describe, expect, it } from '@jest/globals';
import {
  defineEvents,
  InProcessQueue,
  OnWebhookEvent,
  WebhookDeliveries,
  WebhookEndpoints,
  WebhookPublisher,
} from 'nestjs-webhook-token';
import type { Locator, Page } from 'playwright-core';
import { signWebhook } from 'nestjs-webhook-token/testing';
import { WebhookConsoleModule, WebhookPortal } from '../../lib/console/index.js';
import { axeFindings, describeInBrowser, openEachTest, Partner } from '../fixtures/browser.js';
import { send } from '../fixtures/http-client.js';
import { ISSUER, SECRET, startApp } from '../fixtures/receiver-app.js';
import { until } from '../postgres/database.js';

const CAPABILITIES = [
  'view',
  'view-payload',
  'redeliver',
  'manage-endpoints',
  'manage-secrets',
  'share',
  'erase',
] as const;
/** Of an operator who does what the console is for. */
const MOST_ACTIONS = 4;
const EVENTS = defineEvents({
  'bill.created': { description: 'A bill was made.', examples: [{ total: 120 }] },
  'bill.paid': { description: 'A bill is paid.', examples: [{ total: 5 }] },
  'bill.sent': { deprecated: true },
  'bill.sent.late': {},
});

class Bills {
  @OnWebhookEvent('bill.failed')
  fail(): void {
    throw new Error('out of ink');
  }
}

describeInBrowser('tasks in the console', () => {
  const partner = new Partner();
  /** The application around the portal: its pages have a frame. */
  const application = createServer((_, response) => {
    response
      .writeHead(200, { 'Content-Type': 'text/html' })
      .end(`<!doctype html><link rel="icon" href="data:,"><iframe src="${framed}"></iframe>`);
  });
  let framed = 'about:blank';
  let applicationOrigin: string;
  let page: Page;
  let app: INestApplication;
  let origin: string;
  let endpoints: WebhookEndpoints;
  let partnerUrl: string;

  const errors = openEachTest((tab) => {
    ({ page } = tab);
    partner.status = 204;
  });

  beforeAll(async () => {
    await once(application.listen(0, '127.0.0.1'), 'listening');
    const { port } = application.address() as AddressInfo;
    // Another site than the one of the portal.
    applicationOrigin = `http://localhost:${port}`;
    ({ app, origin } = await startApp(new ExpressAdapter(), {
      providers: [Bills],
      options: {
        events: EVENTS,
        receiver: {
          path: 'webhooks',
          issuers: [{ issuer: ISSUER, secret: SECRET }],
          acknowledge: 'queued',
          queue: new InProcessQueue(),
          retry: { attempts: 1 },
        },
        publisher: {
          issuer: ISSUER,
          secret: SECRET,
          allowHttp: true,
          allowedAddresses: ['127.0.0.1'],
          retry: { attempts: 1 },
        },
      },
      imports: [
        WebhookConsoleModule.forRoot({
          capabilities: CAPABILITIES,
          actor: () => 'ada',
          portal: {
            url: 'http://localhost/webhooks/portal',
            secret: 'a-portal-secret-of-32-bytes-or-more',
            frameAncestors: [applicationOrigin],
            returnOrigins: [applicationOrigin],
          },
        }),
      ],
    }));
    endpoints = app.get(WebhookEndpoints);
    partnerUrl = await partner.start();
  });
  afterAll(async () => {
    await app.close();
    partner.stop();
    application.close().closeAllConnections();
  });

  const open = async (hash: string): Promise<void> => {
    await page.goto(`${origin}/webhooks/console/${hash}`);
    await page.getByRole('heading', { level: 1 }).waitFor();
  };
  /** Opens the form of a new endpoint, which gets no event yet. */
  const newEndpoint = async (id: string): Promise<Locator> => {
    await open('#/endpoints');
    await page.getByRole('button', { name: 'Add endpoint' }).click();
    const form = page.getByRole('dialog', { name: 'Add endpoint' });
    await form.getByLabel('Id', { exact: true }).fill(id);
    await form.getByLabel('URL').fill(partnerUrl);
    await form.getByLabel('Every event').uncheck();
    return form;
  };
  const portalUrl = (link: Parameters<WebhookPortal['link']>[0]): string =>
    `${origin}/webhooks/portal/${app.get(WebhookPortal).link(link).hash}`;
  const confirm = async (name: string): Promise<void> => {
    await page.getByRole('button', { name, exact: true }).first().click();
    await page.getByRole('dialog').getByRole('button', { name, exact: true }).click();
  };

  /** Answers as a console in another language. */
  const speak = async (language: string): Promise<void> => {
    await page.unroute('**/api/session');
    await page.route('**/api/session', async (route) => {
      const answer = await route.fetch();
      await route.fulfill({ json: { ...((await answer.json()) as object), language } });
    });
  };

  /** Holds a change back. @returns passes it on */
  const hold = async (path: string): Promise<() => void> => {
    let passOn: () => void = () => undefined;
    const held = new Promise<void>((resolve) => (passOn = resolve));
    await page.route(path, async (route) => {
      if (route.request().method() !== 'GET') await held;
      await route.continue();
    });
    return passOn;
  };

  /** Publishes an event, and waits until its delivery has ended. @returns the id of the delivery */
  const deliver = async (tenant: string, data: unknown = {}): Promise<string> => {
    const { deliveries } = await app.get(WebhookPublisher).publish('bill.paid', data, { tenant });
    const { id } = deliveries[0]!;
    await until(async () => (await app.get(WebhookDeliveries).get(id))?.status !== 'pending');
    return id;
  };

  /** Publishes events with a key to a new endpoint that misses the first and blocks its key. */
  async function blockKey(id: string, orderingKey: string): Promise<void> {
    partner.status = 500;
    await endpoints.create({ id, tenant: id, url: partnerUrl, onDead: 'block' });
    for (const total of [1, 2]) {
      await app
        .get(WebhookPublisher)
        .publish('bill.created', { total }, { tenant: id, orderingKey });
    }
    await until(async () => {
      const { deliveries } = await app.get(WebhookDeliveries).list({ endpointId: id });
      return deliveries.some(({ keyState }) => keyState === 'blocking');
    });
    partner.status = 204;
  }

  describe('of an operator, each in at most four actions', () => {
    let taken = 0;
    beforeAll(async () => {
      for (const id of ['failing', 'working']) {
        // The answer to a HEAD has no body.
        await endpoints.create({ id, tenant: id, url: partnerUrl, method: 'POST' });
      }
    });
    afterEach(() => {
      expect(taken).toBeLessThanOrEqual(MOST_ACTIONS);
      taken = 0;
    });

    const click = async (target: Locator): Promise<void> => {
      taken++;
      await target.click();
    };
    const section = (name: string): Locator =>
      page.getByRole('navigation').getByRole('link', { name });
    const rowOf = (text: string): Locator =>
      page.getByRole('row').filter({ hasText: text }).first().getByRole('link').first();
    const button = (name: string): Locator => page.getByRole('button', { name }).first();
    const inDialog = (name: string): Locator =>
      page.getByRole('dialog').getByRole('button', { name });
    const openEndpoint = async (id: string): Promise<void> => {
      await open('#/overview');
      await click(section('Endpoints'));
      await click(rowOf(id));
    };
    const miss = async (event: string): Promise<void> => {
      partner.status = 500;
      partner.answer = 'out of stock';
      const { deliveries } = await app
        .get(WebhookPublisher)
        .publish(event, { total: 7 }, { tenant: 'failing' });
      const { id } = deliveries[0]!;
      await until(async () => (await app.get(WebhookDeliveries).get(id))?.status === 'dead');
      partner.status = 204;
      partner.answer = '';
    };

    it('why a partner gets nothing', async () => {
      await miss('bill.created');
      await open('#/overview');
      await click(page.locator('.rows').getByRole('link', { name: 'failing' }).first());
      const state = page.locator('.state').filter({ hasText: 'Failing' });
      await state.waitFor();

      expect(await state.textContent()).toMatch(/since .*answered 500|answered 500.*since/);
    });

    it('the exact request and answer', async () => {
      await miss('bill.sent');
      await open('#/overview');
      await click(section('Deliveries'));
      await click(rowOf('bill.sent'));
      await click(button('Show payload'));
      await click(page.getByText('Claims of its token'));
      const { deliveries } = await app.get(WebhookDeliveries).list({ event: 'bill.sent' });
      const sent = await app.get(WebhookDeliveries).get(deliveries[0]!.id);

      await page.getByText(sent!.attempts[0]!.token!.jti).waitFor();
      await page.getByText(partnerUrl, { exact: true }).waitFor();
      await page.getByText('out of stock').waitFor();
      await page.locator('pre').filter({ hasText: '"total"' }).waitFor();
    });

    it('why a request was refused', async () => {
      const secret = 'another-secret-of-32-bytes-or-more';
      const { headers, ...request } = await signWebhook(
        'bill.paid',
        {},
        { issuer: ISSUER, secret },
      );
      await send(origin, { ...request, path: '/webhooks', headers });
      await open('#/overview');
      await click(section('Received'));
      await click(rowOf('bad_signature'));

      const failed = page.getByRole('row').filter({ hasText: 'failed' }).first();
      expect(await failed.textContent()).toMatch(/signature/);
    });

    it('send what failed in the last hour again', async () => {
      await miss('bill.created');
      await open('#/overview');
      await click(page.locator('.cards').getByRole('link', { name: /Missed/ }));
      await click(page.getByRole('link', { name: '1 h', exact: true }));
      await click(button('Send all missed of this list again'));
      await click(inDialog('Send'));
      await page
        .getByRole('status')
        .getByText(/sent again\.$/)
        .waitFor();
    });

    it('disable an endpoint', async () => {
      await openEndpoint('working');
      await click(button('Disable'));
      await click(inDialog('Disable'));
      await page.locator('.state').getByText('Disabled').waitFor();

      expect((await endpoints.get('working')).disabled?.reason).toBe('requested');
    });

    it('enable it again', async () => {
      await openEndpoint('working');
      await click(button('Enable'));
      await page.getByRole('status').getByText('Endpoint enabled.').waitFor();

      expect((await endpoints.get('working')).disabled).toBeUndefined();
    });

    it('rotate a key with an overlap', async () => {
      await openEndpoint('working');
      await click(button('Rotate key'));
      await click(inDialog('Rotate key'));
      await page.getByRole('dialog', { name: 'Secret' }).waitFor();
      const [, next] = (await endpoints.get('working')).keys;

      expect(next!.signsFrom.getTime()).toBeGreaterThan(Date.now() + 23 * 3_600_000);
    });

    it('send a chosen test event', async () => {
      await open('#/overview');
      await click(section('Events'));
      await click(button('Send this example'));
      taken++;
      await page.getByRole('dialog').getByLabel('To').selectOption('working');
      await click(inDialog('Send it'));
      await page.getByRole('status').getByText('working has acknowledged').waitFor();
    });

    it('find a failed handler and run it again', async () => {
      const key = { issuer: ISSUER, secret: SECRET };
      const { headers, ...request } = await signWebhook('bill.failed', {}, key);
      await send(origin, { ...request, path: '/webhooks', headers });
      await open('#/overview');
      await click(section('Dead letters'));
      await click(rowOf('bill.failed'));
      await page.getByText('out of ink').first().waitFor();
      await click(button('Run handlers again'));
      await page.getByRole('status').getByText('1 event runs again.').waitFor();
    });

    it('whether the queue keeps up', async () => {
      await open('#/overview');
      await page.locator('.cards').getByText('none is late').waitFor();
    });

    it('hand a partner a link', async () => {
      await openEndpoint('working');
      await click(button('Portal link'));
      await click(inDialog('Create link'));
      const link = new URL((await page.locator('dialog pre').textContent())!);
      await page.goto(`${origin}/webhooks/portal/${link.hash}`);
      await page.getByText('Webhooks of working').waitFor();
    });
  });

  it('sets credentials and limits, which are never shown again', async () => {
    await endpoints.create({ id: 'gateway', tenant: 'gateway', url: partnerUrl });
    await open('#/endpoints/gateway');
    await page.getByRole('button', { name: 'Edit' }).click();
    const form = page.getByRole('dialog', { name: 'Edit endpoint' });
    await form.getByText('Limits and credentials').click();
    await form.getByLabel('Attempts at the same time').fill('2');
    await form.getByLabel('Attempts a second').fill('0.5');
    await form.getByLabel('Besides the signature').selectOption('headers');
    for (const unnamed of ['a-secret-key', 'X-Api-Key:']) {
      await form.getByLabel(/^Headers/).fill(unnamed);
      await form.getByRole('button', { name: 'Save' }).click();
      await form.getByText('Write each header with its name and its value').waitFor();
    }
    await form.getByLabel(/^Headers/).fill('X-Api-Key: a-secret-key\n\nX-Shop: acme');
    await form.getByRole('button', { name: 'Save' }).click();
    await form.waitFor({ state: 'detached' });
    const row = page.locator('dl > div').filter({ hasText: 'Credentials' });
    await row.getByText('secret headers').waitFor();

    expect((await endpoints.get('gateway')).settings).toMatchObject({
      concurrency: 2,
      rateLimit: { perSecond: 0.5 },
    });
    expect(await page.content()).not.toContain('a-secret-key');

    await page.getByRole('button', { name: 'Edit' }).click();
    await form.getByText('They cannot be shown').waitFor();
    await form.getByLabel('Besides the signature').selectOption('remove');
    await form.getByLabel('Attempts at the same time').fill('');
    await form.getByRole('button', { name: 'Save' }).click();
    await row.waitFor({ state: 'detached' });

    expect((await endpoints.get('gateway')).settings).not.toHaveProperty('concurrency');
  });

  it.each([
    ['Pause', 'pause', 'Paused', 'Endpoint paused.'],
    ['Disable', 'disable', 'Disabled', 'Endpoint disabled.'],
  ] as const)('does what its dialog asks, although another user was faster: %s', async (...row) => {
    const [name, step, state, message] = row;
    await endpoints.create({ id: `race-${step}`, tenant: 'race', url: partnerUrl });
    await open(`#/endpoints/race-${step}`);
    await page.getByRole('button', { name, exact: true }).click();
    const other = await page.context().newPage();
    await other.goto(page.url());
    await other.getByRole('button', { name, exact: true }).click();
    await other.getByRole('dialog').getByRole('button', { name, exact: true }).click();
    await page.locator('.state').getByText(state).waitFor();
    await page.getByRole('dialog').getByRole('button', { name, exact: true }).click();

    await expect(page.locator('.toast span').textContent()).resolves.toBe(message);
  });

  it('saves only what the user changes', async () => {
    const rateLimit = { perSecond: 100, burst: 5 };
    const events = ['bill.*', 'bill.created'];
    const retry = { attempts: 2 };
    await endpoints.create({ id: 'shared', tenant: 'shared', url: partnerUrl, events, rateLimit });
    await open('#/endpoints/shared');
    await page.getByRole('button', { name: 'Edit' }).click();
    const form = page.getByRole('dialog', { name: 'Edit endpoint' });
    const filter = { data: { total: { $gte: 100 } } };
    const byOther = { url: `${partnerUrl}/v2`, events: ['bill.sent'], filter, retry };
    await endpoints.update('shared', { ...byOther, rateLimit: { perSecond: 1 } });
    await form.getByLabel('Name', { exact: true }).fill('Shared endpoint');
    await form.getByRole('button', { name: 'Save' }).click();
    await form.waitFor({ state: 'detached' });

    expect(await endpoints.get('shared')).toMatchObject({
      description: 'Shared endpoint',
      url: `${partnerUrl}/v2`,
      events: ['bill.sent'],
      settings: { filter, retry, rateLimit: { perSecond: 1 } },
    });
  });

  it('subscribes to a typed pattern, and to no event that it begins with', async () => {
    const form = await newEndpoint('typed');
    await form.getByLabel('bill.paid').check();
    await form.getByLabel('Other names').pressSequentially('bill.sent.* bill.paid');
    await form.getByRole('button', { name: 'Save' }).click();
    await page.getByRole('button', { name: 'I have stored it' }).click();

    expect((await endpoints.get('typed')).events).toEqual(['bill.paid', 'bill.sent.*']);
  });

  it('refuses a burst without a rate', async () => {
    await endpoints.create({ id: 'burst', tenant: 'burst', url: partnerUrl });
    await open('#/endpoints/burst');
    await page.getByRole('button', { name: 'Edit' }).click();
    const form = page.getByRole('dialog', { name: 'Edit endpoint' });
    await form.getByText('Limits and credentials').click();
    await form.getByLabel('At once after a rest').fill('5');
    await form.getByRole('button', { name: 'Save' }).click();
    const alert = await form.getByRole('alert').textContent();
    expect(alert!.match(/rateLimit\.perSecond: is missing/g)).toHaveLength(1);

    expect(errors.splice(0)).toEqual([expect.stringContaining('400')]);
  });

  it('sends again what it has counted, and nothing that was missed later', async () => {
    await endpoints.create({ id: 'counted', tenant: 'counted', url: partnerUrl });
    partner.status = 500;
    const first = await deliver('counted');
    await open('#/deliveries?endpoint=counted&status=dead');
    await page.getByRole('button', { name: 'Send all missed of this list again' }).click();
    const send = page.getByRole('dialog').getByRole('button', { name: 'Send 1 delivery again' });
    await send.waitFor();
    const later = await deliver('counted');
    await page.locator('tbody tr').nth(1).waitFor();
    partner.status = 204;
    await send.click();
    await page.getByRole('status').getByText('1 delivery sent again.').waitFor();
    await until(async () => (await app.get(WebhookDeliveries).get(first))?.status === 'delivered');

    expect(await app.get(WebhookDeliveries).get(later)).toMatchObject({ status: 'dead' });
  });

  it('sends nothing again that was delivered after the page showed it as missed', async () => {
    await endpoints.create({ id: 'stale', tenant: 'stale', url: partnerUrl });
    partner.status = 500;
    const ids = [await deliver('stale'), await deliver('stale')];
    const deliveries = app.get(WebhookDeliveries);
    // No live updates, as from another process.
    await page.route('**/api/events', (route) => route.fulfill({ status: 204 }));
    await open('#/deliveries?endpoint=stale');
    await page.getByLabel('Select all').check();
    await page.getByRole('button', { name: 'Send selected again' }).click();
    const send = page.getByRole('dialog').getByRole('button', { name: 'Send 2 deliveries again' });
    await send.waitFor();
    partner.status = 204;
    await deliveries.redeliver(ids[0]!);
    await until(async () => (await deliveries.get(ids[0]!))?.status === 'delivered');
    await send.click();
    await page
      .getByRole('status')
      .getByText(
        '1 delivery sent again. 1 delivery was delivered in the meantime and not sent again.',
      )
      .waitFor();

    partner.status = 500;
    const id = await deliver('stale');
    await open(`#/deliveries/${encodeURIComponent(id)}`);
    const retry = page.getByRole('button', { name: 'Retry now' });
    await retry.waitFor();
    partner.status = 204;
    await deliveries.redeliver(id);
    await until(async () => (await deliveries.get(id))?.status === 'delivered');
    await retry.click();
    await page
      .getByRole('status')
      .getByText(/^1 delivery was delivered in the meantime/)
      .waitFor();
    await until(async () => {
      const { deliveries: found } = await deliveries.list({ endpointId: 'stale' });
      return found.every(({ status }) => status === 'delivered');
    });

    expect((await deliveries.list({ endpointId: 'stale' })).deliveries).toHaveLength(3);
  });

  it('keeps those selected that a limit has left, and says so', async () => {
    await endpoints.create({ id: 'limited', tenant: 'limited', url: partnerUrl });
    for (const total of [1, 2, 3]) await deliver('limited', { total });
    let sent: string | undefined;
    await page.route('**/api/deliveries/redeliver', async (route) => {
      const { ids, dryRun } = route.request().postDataJSON() as { ids: string[]; dryRun: boolean };
      if (dryRun) return route.continue();
      [sent] = ids;
      const items = [{ id: sent, redelivered: true }];
      return route.fulfill({ json: { dryRun, items, more: true } });
    });
    await open('#/deliveries?endpoint=limited');
    await page.getByLabel('Select all').check();
    await page.getByRole('button', { name: 'Send selected again' }).click();
    await page.getByRole('dialog').getByRole('button', { name: 'Send 3 deliveries' }).click();
    await page
      .getByRole('status')
      .getByText('1 delivery sent again. 2 are left and still selected')
      .waitFor();
    await page.getByText('2 selected').waitFor();

    expect(await page.getByLabel(`Select ${sent}`).isChecked()).toBe(false);
  });

  it('shows a new secret to a user who has left the page meanwhile', async () => {
    await endpoints.create({ id: 'rotated', tenant: 'rotated', url: partnerUrl });
    await open('#/endpoints/rotated');
    const passOn = await hold('**/rotate-key');
    await confirm('Rotate key');
    await open('#/activity');
    passOn();
    await page.getByRole('dialog', { name: 'Secret' }).waitFor();
    await open('#/overview');
    await page.getByRole('button', { name: 'I have stored it' }).click();

    expect(await page.getByRole('dialog').count()).toBe(0);
  });

  it('leaves a user where it has gone while an action runs', async () => {
    await endpoints.create({ id: 'moved', tenant: 'moved', url: partnerUrl });
    await open(`#/deliveries/${encodeURIComponent(await deliver('moved'))}`);
    const passOn = await hold('**/deliveries/redeliver');
    await confirm('Send again');
    await open('#/activity');
    passOn();
    await page.getByRole('status').getByText('1 delivery sent again.').waitFor();
    expect(new URL(page.url()).hash).toBe('#/activity');

    await open('#/endpoints/moved');
    const passDeletion = await hold('**/api/endpoints/moved');
    await page.getByRole('button', { name: 'Delete' }).click();
    await page.getByRole('textbox', { name: 'moved' }).fill('moved');
    await page.getByRole('dialog').getByRole('button', { name: 'Delete' }).click();
    await open('#/activity');
    passDeletion();
    await page.getByRole('status').getByText('Endpoint deleted.').waitFor();
    expect(new URL(page.url()).hash).toBe('#/activity');
  });

  it('returns the focus to the button of a dialog that is cancelled', async () => {
    await endpoints.create({ id: 'focus', tenant: 'focus', url: partnerUrl });
    await open('#/endpoints/focus');
    await page.getByRole('button', { name: 'Pause', exact: true }).click();
    await page.getByRole('button', { name: 'Cancel' }).click();

    await page.locator('button:focus', { hasText: /^Pause$/ }).waitFor();
  });

  it('copies no body as curl of which it has only a part, and says so', async () => {
    await page.context().grantPermissions(['clipboard-read', 'clipboard-write']);
    await endpoints.create({ id: 'large', tenant: 'large', url: partnerUrl, method: 'POST' });
    const id = await deliver('large', { items: 'x'.repeat(70_000) });
    await open(`#/deliveries/${encodeURIComponent(id)}`);
    await page.getByRole('button', { name: 'Copy as curl' }).click();
    await page.getByRole('status').getByText('Copied without the body').waitFor();
    const copied = await page.evaluate('navigator.clipboard.readText()');

    expect(copied).toContain(partnerUrl);
    expect(copied).not.toContain('--data-raw');
  });

  it('copies a body with control characters as curl without writing one', async () => {
    await page.context().grantPermissions(['clipboard-read', 'clipboard-write']);
    await endpoints.create({ id: 'terminal', tenant: 'terminal', url: partnerUrl, method: 'POST' });
    const id = await deliver('terminal');
    const text = 'it\'s \\ "$HOME"\n\u001b[201~\u007f\u009b31m';
    await page.route('**/payload', (route) =>
      route.fulfill({ json: { text, contentType: 'text/plain', truncated: false } }),
    );
    await open(`#/deliveries/${encodeURIComponent(id)}`);
    await page.getByRole('button', { name: 'Copy as curl' }).click();
    await page.getByRole('status').getByText('Copied', { exact: false }).waitFor();
    const copied = await page.evaluate<string>('navigator.clipboard.readText()');

    expect(copied).not.toMatch(/[\u0000-\u0009\u000b-\u001f\u007f-\u009f]/);
    const script = `curl() { printf %s "\${@: -1}"; }; ${copied}`;
    const env = { ...process.env, LC_ALL: 'C.UTF-8' };
    expect(execFileSync('bash', ['-c', script], { env, encoding: 'utf8' })).toBe(text);
  });

  it('says why it cannot copy on a page without https', async () => {
    await page.addInitScript('delete Navigator.prototype.clipboard');
    await endpoints.create({ id: 'plain', tenant: 'plain', url: partnerUrl });
    await open(`#/deliveries/${encodeURIComponent(await deliver('plain'))}`);
    await page.getByRole('button', { name: 'Copy as curl' }).click();

    await page.getByRole('status').getByText('Select the text instead.').waitFor();
  });

  it('leads back from an older page of dead letters that is empty now', async () => {
    await page.route('**/api/dead-letters?after=*', (route) =>
      route.fulfill({ json: { items: [] } }),
    );
    await open('#/dead-letters?after=place');
    await page.getByRole('link', { name: 'Newest' }).waitFor();

    expect(await page.getByText('There is no dead letter').count()).toBe(0);
  });

  it('ignores an unknown preset of the time', async () => {
    await open('#/deliveries?last=constructor');
    await page.getByRole('group', { name: 'Time' }).waitFor();
  });

  it('reads a date as one of the user, and in place of a preset', async () => {
    const zone = { timezoneId: 'America/New_York' };
    const context = await page.context().browser()!.newContext(zone);
    const tab = await context.newPage();
    await tab.goto(`${origin}/webhooks/console/#/deliveries?last=24h`);
    const asked = tab.waitForRequest(/deliveries\?.*until=/);
    await tab.getByLabel('Search', { exact: true }).fill('until:2026-01-20');
    await tab.keyboard.press('Enter');
    const { searchParams } = new URL((await asked).url());
    await context.close();

    expect([...searchParams]).toEqual([['until', '2026-01-20T05:00:00.000Z']]);
  });

  it('filters by a name of several words that is in quotes, as it suggests it', async () => {
    for (const tenant of ['Acme', 'Acme GmbH']) {
      await endpoints.create({ tenant, url: partnerUrl });
      await deliver(tenant);
    }
    await open('#/deliveries');
    const suggestion = page.locator('datalist option[value^="tenant:\\"Acme"]');
    await suggestion.waitFor({ state: 'attached' });
    const search = page.getByLabel('Search', { exact: true });
    await search.fill((await suggestion.getAttribute('value'))!);
    await search.press('Enter');
    await page.getByRole('link', { name: 'Tenant "Acme GmbH"' }).waitFor();
    await page.getByRole('button', { name: 'deliveries of Acme GmbH' }).waitFor();
    expect(new URL(page.url()).hash).toBe('#/deliveries?tenant=Acme+GmbH');

    await open('#/deliveries');
    await search.fill('tenant:Acme GmbH');
    await search.press('Enter');
    await page.getByRole('link', { name: 'Event GmbH' }).waitFor();
    await page.getByText('Nothing matches.').waitFor();
    expect(await page.getByRole('button', { name: 'deliveries of Acme' }).count()).toBe(0);
  });

  it.each(['since:yesterday', 'last:7d', 'failureReason:http_500'])(
    'says that there is no filter %s',
    async (unknown) => {
      await open('#/deliveries');
      const search = page.getByLabel('Search', { exact: true });
      await search.fill(`bill.paid ${unknown}`);
      await search.press('Enter');
      const notice = page.getByRole('status').getByText(`There is no filter ${unknown}.`);

      expect(await notice.textContent()).toContain('status, event, endpoint, tenant, keyState');
      expect(await search.inputValue()).toBe(`bill.paid ${unknown}`);
      expect(new URL(page.url()).hash).toBe('#/deliveries');
    },
  );

  it('erases a tenant only once its name is typed', async () => {
    await endpoints.create({ id: 'leaving', tenant: 'leaving', url: partnerUrl });
    await app.get(WebhookPublisher).publish('bill.paid', { total: 1 }, { tenant: 'leaving' });
    await open('#/deliveries?tenant=leaving');
    await page.getByRole('button', { name: 'Erase endpoints and deliveries of leaving' }).click();
    const dialog = page.getByRole('dialog');
    const erase = dialog.getByRole('button', { name: 'Erase for good' });
    expect(await erase.isDisabled()).toBe(true);
    expect(await dialog.textContent()).toContain('Activity stays until it expires.');
    await dialog.getByRole('textbox', { name: 'leaving' }).fill('leaving');
    await erase.click();
    await page.getByRole('status').getByText('Erased: 1 endpoint, 1 delivery.').waitFor();

    expect((await app.get(WebhookDeliveries).list({ tenant: 'leaving' })).deliveries).toEqual([]);
  });

  it('shows which delivery blocks a key, and skips it', async () => {
    await blockKey('ledger', 'customer-7');
    await open('#/deliveries?endpoint=ledger');
    const waiting = page.getByRole('row').filter({ hasText: 'Waits for its key' });
    await waiting.getByRole('link').first().click();
    await page.getByText('It waits for an earlier delivery of the key customer-7.').waitFor();
    await page.getByRole('link', { name: 'Show the missed delivery' }).click();
    await page.locator('.state').getByText('Blocks its key').waitFor();
    await confirm('Skip');
    await page
      .getByRole('status')
      .getByText('The deliveries of the key customer-7 continue.')
      .waitFor();

    await open('#/deliveries?endpoint=ledger&status=delivered');
    await page.getByRole('row').filter({ hasText: 'bill.created' }).waitFor();
  });

  it('lists the blocked keys of an endpoint, and retries one', async () => {
    await blockKey('stock', 'sku-1');
    await open('#/endpoints/stock');
    await page.locator('.state').getByText('1 key is blocked').waitFor();
    const row = page.getByRole('row').filter({ hasText: 'sku-1' });
    expect(await row.textContent()).toContain('answered 500');
    await row.getByRole('button', { name: 'Retry now' }).click();
    await row.waitFor({ state: 'detached' });

    await open('#/deliveries?endpoint=stock&status=delivered');
    await page.getByRole('row').filter({ hasText: 'bill.created' }).nth(1).waitFor();
  });

  it('recovers in the background, and shows the progress after a reload', async () => {
    partner.status = 500;
    await endpoints.create({ id: 'crm', tenant: 'crm', url: partnerUrl });
    for (const total of [1, 2]) {
      await app.get(WebhookPublisher).publish('bill.paid', { total }, { tenant: 'crm' });
    }
    await until(async () => {
      const { deliveries } = await app.get(WebhookDeliveries).list({ endpointId: 'crm' });
      return deliveries.every(({ status }) => status === 'dead');
    });
    partner.status = 204;
    await open('#/endpoints/crm');
    await page.getByRole('button', { name: 'Recover missed' }).click();
    await page.getByRole('dialog').getByText('2 deliveries to send again.').waitFor();
    await page.getByRole('button', { name: 'Send them again' }).click();
    await page.getByRole('status').getByText('The recovery has started.').waitFor();
    await page.reload();
    await page.getByText('2 of 2 sent again.').waitFor();
    await page.getByText('Started by ada').waitFor();

    await open('#/activity?target=crm');
    await page.getByRole('row').filter({ hasText: 'Recovery of missed deliveries' }).waitFor();
  });

  it('cancels a recovery that runs', async () => {
    await endpoints.create({ id: 'erp', tenant: 'erp', url: partnerUrl });
    const at = new Date().toISOString();
    const recovery = { endpoint: 'erp', startedAt: at, updatedAt: at, skipped: 1, total: 9 };
    let status = 'running';
    await page.route('**/api/endpoints/erp/recovery', async (route) => {
      if (route.request().method() === 'DELETE') status = 'cancelled';
      await route.fulfill({ json: { recovery: { ...recovery, status, sent: 3 } } });
    });
    await open('#/endpoints/erp');
    await page.getByText('3 of 9 sent again. 1 skipped').waitFor();
    const progress = page.getByRole('progressbar');
    expect([await progress.getAttribute('value'), await progress.getAttribute('max')]).toEqual([
      '4',
      '9',
    ]);
    await confirm('Cancel recovery');
    await page.getByText('cancelled', { exact: true }).waitFor();

    expect(await progress.count()).toBe(0);
  });

  it('adds an endpoint for chosen events and a filter, which it tries with examples', async () => {
    const form = await newEndpoint('filtered');
    await form.getByLabel('bill.created').check();
    await form.getByLabel('bill.paid').check();
    await form.getByLabel('Other names and patterns').fill('bill.*');
    const filter = form.getByLabel('Filter');
    await filter.fill('{"data":{"total":{"$gtee":100}}}');
    await form.getByText('did you mean "$gte"').waitFor();
    expect(await form.getByRole('button', { name: 'Save' }).isDisabled()).toBe(true);
    await filter.fill('{"data":{"total":{"$gte":100}}}');
    await form.getByText('The example of bill.created matches.').waitFor();
    await form.getByText('The example of bill.paid does not match.').waitFor();
    await form.getByLabel('After a missed delivery').selectOption('block');
    await form.getByLabel('Attempts of a delivery').fill('3');
    await form.getByRole('button', { name: 'Save' }).click();
    await page.getByRole('button', { name: 'I have stored it' }).click();
    const added = await endpoints.get('filtered');

    expect(added.events).toEqual(['bill.created', 'bill.paid', 'bill.*']);
    expect(added.settings).toMatchObject({
      filter: { data: { total: { $gte: 100 } } },
      onDead: 'block',
      retry: { attempts: 3 },
    });

    await open('#/endpoints/filtered');
    await page.getByRole('button', { name: 'Edit' }).click();
    const edit = page.getByRole('dialog', { name: 'Edit endpoint' });
    expect(await edit.getByLabel('bill.paid').isChecked()).toBe(true);
    await edit.getByLabel('bill.paid').uncheck();
    await edit.getByLabel('Filter').fill('');
    await edit.getByLabel('Attempts of a delivery').fill('');
    await edit.getByRole('button', { name: 'Save' }).click();
    await edit.waitFor({ state: 'detached' });
    const edited = await endpoints.get('filtered');

    expect(edited.events).toEqual(['bill.created', 'bill.*']);
    expect(edited.settings).toMatchObject({ onDead: 'block' });
    expect(edited.settings).not.toHaveProperty('filter');
    expect(edited.settings).not.toHaveProperty('retry');
  });

  it('shows in which format an endpoint acknowledged requests', async () => {
    const profile = ['webhook-token', 'standard-webhooks'] as const;
    await endpoints.create({ id: 'tandem', tenant: 'tandem', url: partnerUrl, profile });
    await open('#/endpoints/tandem');
    await page.getByText('Format', { exact: true }).waitFor();
    expect(await page.getByText('Acknowledged format').count()).toBe(0);
    await app.get(WebhookPublisher).publish('bill.paid', { total: 1 }, { tenant: 'tandem' });
    await until(async () => {
      const { deliveries } = await app.get(WebhookDeliveries).list({ endpointId: 'tandem' });
      return deliveries.every(({ status }) => status === 'delivered');
    });
    await page.reload();
    const row = page.locator('dl > div').filter({ hasText: 'Acknowledged format' });
    await row.getByText(profile.join(' + ')).waitFor();
  });

  it('shows who did what, and a partner only what concerns it', async () => {
    for (const [id, tenant] of [
      ['acme-hooks', 'acme'],
      ['globex-hooks', 'globex'],
    ] as const) {
      await endpoints.create({ id, tenant, url: partnerUrl });
      await open(`#/endpoints/${id}`);
      await confirm('Pause');
      await page.locator('.state').getByText('Paused').waitFor();
    }
    await open('#/activity?action=endpoint.pause');
    const row = page.getByRole('row').filter({ hasText: 'globex-hooks' });
    await row.waitFor();
    expect(await row.textContent()).toContain('ada');

    await page.goto(portalUrl({ tenant: 'acme' }));
    await page.getByRole('link', { name: 'Activity', exact: true }).click();
    await page.getByRole('row').filter({ hasText: 'acme-hooks' }).waitFor();
    const own = page.getByRole('row').filter({ hasText: 'Endpoint paused' });

    expect(await own.textContent()).toContain('an operator');
    expect(await page.getByText('globex-hooks').count()).toBe(0);
    expect(await page.getByText('ada').count()).toBe(0);
  });

  it('is shown in a frame without its own header, and leads back', async () => {
    const look = { displayName: 'Acme Ltd', returnUrl: `${applicationOrigin}/settings` };
    framed = portalUrl({ tenant: 'acme', ...look });
    await page.goto(framed);
    await page.getByText('Webhooks of Acme Ltd').waitFor();
    await page.goto(applicationOrigin);
    const frame = page.frameLocator('iframe');
    await frame.getByRole('heading', { name: 'Overview' }).waitFor();
    expect(await frame.getByText('Webhooks of Acme Ltd').isVisible()).toBe(false);
    expect(await frame.getByRole('button', { name: 'Sign out' }).isVisible()).toBe(false);
    await frame.getByRole('link', { name: /Back to localhost/ }).click();

    await page.waitForURL(look.returnUrl);
  });

  it('speaks German, with numbers and times in German', async () => {
    await endpoints.create({ id: 'berlin', tenant: 'berlin', url: partnerUrl });
    await app.get(WebhookPublisher).publish('bill.paid', { total: 1 }, { tenant: 'berlin' });
    await page.goto(portalUrl({ tenant: 'berlin', language: 'de' }));
    await page.getByText('Webhooks von berlin').waitFor();
    await page.getByRole('link', { name: 'Zustellungen', exact: true }).click();
    const row = page.getByRole('row').filter({ hasText: 'bill.paid' }).first();
    await row.waitFor();

    expect(await page.evaluate('document.documentElement.lang')).toBe('de');
    expect(await row.textContent()).toContain('Zugestellt');
    expect(await row.locator('time').first().getAttribute('title')).toMatch(/^\d\d\.\d\d\.\d{4}, /);
  });

  it.each([
    ['en', '1 day ago', '2 days ago'],
    ['de', 'vor 1 Tag', 'vor 2 Tagen'],
  ])('counts days of 24 hours, which may end on another date: %s', async (language, ...texts) => {
    await page.route('**/api/deliveries?*', async (route) => {
      const items = [47, 71].map((hours) => ({
        id: String(hours),
        event: 'bill.paid',
        status: 'delivered',
        attemptsMade: 1,
        createdAt: new Date(Date.now() - hours * 3_600_000).toISOString(),
      }));
      await route.fulfill({ json: { items } });
    });
    await speak(language);
    await open('#/deliveries?event=bill.paid');
    await page.locator('tbody tr').nth(1).waitFor();

    expect(await page.locator('tbody time').allTextContents()).toEqual(texts);
  });

  it.each([-65, 65])(
    'shows the time of the server, whose clock differs by %d minutes',
    async (by) => {
      await endpoints.create({ id: `clock${by}`, tenant: `clock${by}`, url: partnerUrl });
      await deliver(`clock${by}`);
      await page.clock.install({ time: Date.now() - by * 60_000 });
      await open(`#/deliveries?endpoint=clock${by}&last=1h`);
      const time = page.locator('tbody time').first();
      expect(await time.textContent()).toMatch(/^(?:now|\d+ sec\. ago)$/);

      const asked = page.waitForRequest(/api\/stats\?/);
      await open('#/overview?range=1h');
      const { searchParams } = new URL((await asked).url());
      const end = Date.parse(searchParams.get('to')!) - Date.now();
      expect(Math.abs(end)).toBeLessThanOrEqual(3 * 60_000);
    },
  );

  it('leaves no string in English where the language is German', async () => {
    await blockKey('wholesale', 'customer-9');
    // The same word in both languages, and data.
    const same = /^(Status|Id|URL|Name|Filter|Format|Median|p95|wholesale|bill\..*|[\d\s%–-]*|)$/;
    const texts = async (): Promise<string[]> =>
      page
        .locator(
          'nav a > span:first-of-type, main :is(h1, h2, th, dt, button, legend, summary, .intro, .pill, .empty, .choice a)',
        )
        .allTextContents();
    const found: string[] = [];
    for (const hash of [
      '#/overview',
      '#/deliveries',
      '#/endpoints',
      '#/endpoints/wholesale',
      '#/event-types',
      '#/dead-letters',
      '#/activity',
    ]) {
      const shown: string[][] = [];
      for (const language of ['en', 'de']) {
        await speak(language);
        await open(hash);
        await page.reload();
        await page.getByRole('heading', { level: 1 }).waitFor();
        await page.locator('.skeleton').first().waitFor({ state: 'detached' });
        shown.push(await texts());
      }
      const [english, german] = shown;
      found.push(...german!.filter((text) => english!.includes(text) && !same.test(text)));
    }

    expect(found).toEqual([]);
  });

  it.each([
    ['light', 1280, 'en'],
    ['dark', 1280, 'en'],
    ['light', 390, 'en'],
    ['dark', 390, 'en'],
    ['light', 1280, 'de'],
  ] as const)(
    'has no accessibility findings in %s colours, %d pixels wide, in the language %s',
    async (colorScheme, width, language) => {
      await blockKey(`axe-${colorScheme}-${width}-${language}`, 'key');
      const { headers, ...request } = await signWebhook(
        'bill.failed',
        {},
        { issuer: ISSUER, secret: SECRET },
      );
      await send(origin, { ...request, path: '/webhooks', headers });
      await page.emulateMedia({ colorScheme });
      await page.setViewportSize({ width, height: 800 });
      await speak(language);
      const found: unknown[] = [];
      for (const hash of [
        '#/event-types',
        '#/dead-letters',
        '#/activity',
        `#/endpoints/axe-${colorScheme}-${width}-${language}`,
        '#/endpoints',
      ]) {
        await open(hash);
        await page.locator('.skeleton').first().waitFor({ state: 'detached' });
        found.push(...(await axeFindings(page)).map((finding) => [hash, finding]));
      }
      await page
        .getByRole('button', { name: language === 'de' ? 'Endpunkt hinzufügen' : 'Add endpoint' })
        .click();
      await page.getByRole('checkbox').first().uncheck();
      await page.locator('dialog summary').click();
      await page.locator('select[name=credentials]').selectOption('oauth2');
      found.push(...(await axeFindings(page)).map((finding) => ['form', finding]));

      expect(found).toEqual([]);
    },
  );
});
