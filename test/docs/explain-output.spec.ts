import { mkdtemp, rm, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { expect, it } from '@jest/globals';
import { runExplain } from '../cli/explain-run.js';
import { hashOf, ISSUER, tokenOf } from '../explain/receiver-bench.js';
import { documentAt } from './documents.js';

const PATH = 'docs/guides/explain.md';

/** The request of the page: signed compact, arrived indented. */
async function printed(): Promise<string> {
  const order = { id: 'o1', total: 3 };
  const [sent, arrived] = [JSON.stringify(order), JSON.stringify(order, undefined, 2)];
  const token = tokenOf({ hash: hashOf(sent), id: 'a4e0c7d2', txn: 'e1' });
  const request = (body: string): string =>
    `POST /webhooks HTTP/1.1\r\nAuthorization: Bearer ${token}\r\nContent-Type: application/json\r\nContent-Length: ${body.length}\r\n\r\n${body}`;
  const args = ['--issuer', ISSUER, '--now', '2026-01-01T00:00:03Z'];
  const asSent = await runExplain([...args, '--json'], { stdin: request(sent) });
  const { receipt } = JSON.parse(asSent.out) as { receipt: object };
  const folder = await mkdtemp(join(tmpdir(), 'webhook-explain-'));
  try {
    const file = join(folder, 'sent.json');
    await writeFile(file, JSON.stringify(receipt));
    const { exit, out } = await runExplain([...args, '--receipt', file], {
      stdin: request(arrived),
    });
    expect(exit).toBe(1);
    return out;
  } finally {
    await rm(folder, { recursive: true });
  }
}

it(`${PATH} shows what the command prints`, async () => {
  const shown = documentAt(PATH).blocks.find(({ language }) => language === 'text')?.code;

  expect(shown).toBe((await printed()).trimEnd());
});
