import { mkdtemp, readdir, rm, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterEach, beforeEach, describe, expect, it } from '@jest/globals';
import { IsString } from 'class-validator';
import { z } from 'zod';
import { defineEvents } from 'nestjs-webhook-token';
import { expectCompatible, recordEvents } from '../../lib/testing/expect-compatible.js';
import { signed } from '../fixtures/receiver-app.js';

const order = z.object({ id: z.string(), total: z.number() });

class Refund {
  @IsString() id!: string;
}

const sent = [
  { event: 'order.created', data: { id: 'o-1', total: 12 } },
  { event: 'order.created', data: { id: 'o-2', total: 1 } },
  { event: 'refund.paid', data: { id: 'r-1' } },
];

describe('expectCompatible', () => {
  let folder: string;

  beforeEach(async () => {
    folder = await mkdtemp(join(tmpdir(), 'recorded-'));
    await recordEvents(folder, [...sent, sent[0]!, { event: 'file.sent', data: Buffer.from('a') }]);
  });
  afterEach(async () => rm(folder, { recursive: true }));

  it('reads one file for each content, and accepts an additive change', async () => {
    const schema = order.extend({ note: z.string().optional() });
    const events = defineEvents({ 'order.created': { schema }, 'refund.paid': { dto: Refund } });

    await expectCompatible(events, folder);
    await expectCompatible(events, sent);
    expect(await readdir(folder)).toHaveLength(3);
  });

  it('skips the tests of endpoints and events without a name, which no one defines', async () => {
    const events = defineEvents({ 'order.created': { schema: order }, 'refund.paid': {} });
    const others = [
      { event: 'webhook.test', data: {} },
      { event: '', data: 1 },
    ];
    await recordEvents(folder, others);

    expect(await readdir(folder)).toHaveLength(3);
    await expectCompatible(events, [...sent, ...others]);
    await expect(expectCompatible(events, others)).rejects.toThrow(
      'There is no recording to check',
    );
  });

  it('names the first recording that is refused, and the path in its data', async () => {
    const schema = order.extend({ currency: z.string(), total: z.string() });
    const events = defineEvents({ 'order.created': { schema }, 'refund.paid': { dto: Refund } });

    await expect(expectCompatible(events, folder)).rejects.toThrow(
      /order\.created\.\w{8}\.json: "order\.created" does not accept this data any more:\n {2}- total invalid_type .*\n {2}- currency invalid_type/,
    );
    await expect(expectCompatible(events, sent)).rejects.toThrow('recording 0: "order.created"');
  });

  it('names an event that is not defined any more', async () => {
    const events = defineEvents({ 'order.created': { schema: order } });

    await expect(expectCompatible(events, folder)).rejects.toThrow(
      '"refund.paid" is not defined any more',
    );
  });

  const record = async (request: unknown): Promise<string> => {
    const file = join(folder, 'request.json');
    await writeFile(file, typeof request === 'string' ? request : JSON.stringify(request));
    return file;
  };

  it('reads requests that the command line has recorded', async () => {
    const events = defineEvents({ 'order.created': { schema: order } });
    const head = { authorization: `Bearer ${signed({ data: { id: 7 } })}` };
    const post = { Authorization: `Bearer ${signed()}` };

    await expect(
      expectCompatible(events, await record({ method: 'HEAD', headers: head })),
    ).rejects.toThrow('id invalid_type');
    const body = JSON.stringify({ id: 'o-1', total: 1 });
    await expectCompatible(events, await record({ method: 'POST', headers: post, body }));
    await expect(expectCompatible(events, await record({ body }))).rejects.toThrow(
      'is not a recording',
    );
  });

  it('reads a recorded body that is not JSON as bytes', async () => {
    const events = defineEvents({ 'order.created': { schema: z.instanceof(Buffer) } });
    const headers = { authorization: `Bearer ${signed()}`, 'content-type': 'text/csv' };

    await expectCompatible(
      events,
      await record({ method: 'POST', headers, body: 'id,total\n1,2' }),
    );
    await expectCompatible(events, await record({ method: 'POST', headers, bodyBase64: '/w==' }));
  });

  it.each([
    ['broken JSON', '{ "event": '],
    ['null', null],
    ['a list', [{ event: 'order.created' }]],
    ['headers that are no object', { headers: null }],
    ['a header that is no token', { headers: { authorization: 'Bearer a.b.c' } }],
    ['other credentials', { headers: { authorization: ['Basic YTpi'] } }],
    [
      'a body that is not the JSON that it declares',
      { headers: { authorization: `Bearer ${signed()}` }, body: '{ "id":' },
    ],
    ['a body that is no string', { headers: { authorization: `Bearer ${signed()}` }, body: 7 }],
  ])('names the file with %s', async (_, content) => {
    await expect(expectCompatible(defineEvents({}), await record(content))).rejects.toThrow(
      /request\.json is not a recording: /,
    );
  });

  it('rejects if there is nothing to check', async () => {
    await expect(expectCompatible(defineEvents({}), [])).rejects.toThrow(
      'There is no recording to check',
    );
  });
});
