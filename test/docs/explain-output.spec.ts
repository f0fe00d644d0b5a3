import { Readable, Writable } from 'node:stream';
import { mkdtemp, rm, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { describe, expect, it } from '@jest/globals';
import { run } from '../../lib/cli/explain.command.js';
import { EXPLANATION_HINTS } from '../../lib/explain/webhook-explanation.interface.js';
import { receiptOf } from '../../lib/token/webhook-receipt.js';
import { readFileSync } from 'node:fs';
import { hashOf, ISSUER, SECRET, tokenOf } from '../explain/receiver-bench.js';
import { documentAt, ROOT } from './documents.js';

const PATH = 'docs/guides/explain.md';
const TEXT = readFileSync(join(ROOT, PATH), 'utf8');

/** The request of the page: signed compact, arrived indented. */
async function printed(): Promise<string> {
  const order = { id: 'o1', total: 3 };
  const [sent, arrived] = [JSON.stringify(order), JSON.stringify(order, undefined, 2)];
  const token = tokenOf({ hash: hashOf(sent), id: 'a4e0c7d2', txn: 'e1' });
  const contentType = 'application/json';
  const receipt = receiptOf(token, {
    method: 'POST',
    bodyBytes: sent.length,
    contentType,
    profile: 'webhook-token',
  });
  const folder = await mkdtemp(join(tmpdir(), 'webhook-explain-'));
  try {
    const [request, receiptFile] = [join(folder, 'request.http'), join(folder, 'sent.json')];
    await writeFile(
      request,
      `POST /webhooks HTTP/1.1\r\nAuthorization: Bearer ${token}\r\nContent-Type: ${contentType}\r\nContent-Length: ${arrived.length}\r\n\r\n${arrived}`,
    );
    await writeFile(receiptFile, JSON.stringify(receipt));
    let out = '';
    const stdout = new Writable({
      write(chunk: Buffer, _, done) {
        out += chunk.toString();
        done();
      },
    });
    const args = ['--issuer', ISSUER, '--now', '2026-01-01T00:00:03Z', '--receipt', receiptFile];
    const io = {
      stdin: Readable.from([]),
      stdout,
      stderr: stdout,
      env: { WEBHOOK_SECRET: SECRET },
    };
    expect(await run([request, ...args], io)).toBe(1);
    return out;
  } finally {
    await rm(folder, { recursive: true });
  }
}

describe(PATH, () => {
  it('shows what the command prints', async () => {
    const shown = documentAt(PATH).blocks.find(({ language }) => language === 'text')?.code;

    expect(shown).toBe((await printed()).trimEnd());
  });

  it('lists every hint, and no other', () => {
    const [, table = ''] = /\n## Hints\n([\s\S]*?)\n## /.exec(TEXT) ?? [];
    const rows = table.split('\n').filter((line) => line.startsWith('| `'));
    const listed = rows.flatMap((row) =>
      [...row.split('|')[1]!.matchAll(/`(\w+)`/g)].map(([, code]) => code!),
    );

    expect(listed.sort()).toEqual([...EXPLANATION_HINTS].sort());
  });
});
