// Takes the screenshots of the documentation from sample 03: npm run screenshots
import { spawn } from 'node:child_process';
import { mkdtemp, rm } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { createInterface } from 'node:readline';
import { fileURLToPath } from 'node:url';
import { chromium } from 'playwright-core';

const root = fileURLToPath(new URL('../../', import.meta.url));
const folder = await mkdtemp(join(tmpdir(), 'webhook-screenshots-'));
const sample = spawn(process.execPath, ['sample/start.mjs', '03-full-stack'], {
  cwd: root,
  env: { ...process.env, STORAGE_DIRECTORY: folder },
  stdio: ['ignore', 'pipe', 'inherit'],
});
const browser = await chromium.launch({
  executablePath: process.env.CHROMIUM ?? '/usr/bin/chromium',
  args: ['--no-sandbox', '--disable-gpu', '--disable-background-networking', '--disable-sync'],
});
try {
  for await (const line of createInterface(sample.stdout)) {
    if (line.startsWith('The warehouse')) break;
  }
  const [shop, warehouse] = ['http://127.0.0.1:3007', 'http://127.0.0.1:3008'];
  const order = (customer, total) =>
    fetch(`${shop}/orders`, {
      method: 'POST',
      headers: { 'Content-Type': 'application/json' },
      body: JSON.stringify({ customer, total }),
    });
  for (const customer of ['Ada', 'Grace', 'Edsger', 'Barbara']) await order(customer, 4_200);
  await fetch(`${warehouse}/close`, { method: 'POST' });
  for (const customer of ['Alan', 'Donald']) await order(customer, 1_999);
  for (const colorScheme of ['light', 'dark']) {
    const context = await browser.newContext({
      colorScheme,
      viewport: { width: 1200, height: 620 },
      httpCredentials: { username: 'admin', password: process.env.ADMIN_PASSWORD ?? 'sample' },
    });
    const page = await context.newPage();
    await page.goto(`${shop}/webhooks/console/#/deliveries`);
    await page.getByRole('row').filter({ hasText: 'http_503' }).first().waitFor();
    await page.screenshot({ path: join(root, `docs/guides/console-${colorScheme}.png`) });
    await context.close();
  }
} finally {
  await browser.close();
  sample.kill();
  await rm(folder, { recursive: true, force: true });
}
