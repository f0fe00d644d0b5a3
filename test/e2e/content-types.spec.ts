import { afterAll, beforeAll, describe, expect, it } from '@jest/globals';
import { adapters } from '../fixtures/adapters.js';
import { head, post } from '../fixtures/http-client.js';
import {
  ISSUER,
  SECRET,
  receiverOptions,
  signed,
  signedBody,
  startApp,
  type StartedApp,
} from '../fixtures/receiver-app.js';

describe.each(adapters)('contentTypes of an issuer on %s', (_, make) => {
  let started: StartedApp;
  beforeAll(async () => {
    started = await startApp(make(), {
      options: receiverOptions({
        issuers: [
          { issuer: ISSUER, secret: SECRET, contentTypes: ['Application/JSON', 'image/*'] },
        ],
      }),
    });
  });
  afterAll(async () => started.app.close());

  const statusOf = async (contentType: string, body = '{}'): Promise<number> => {
    const headers = { 'content-type': contentType };
    return (await post(started.origin, signedBody(body), { headers })).status;
  };

  it.each(['application/json', 'APPLICATION/JSON ; Charset="UTF-8"', 'image/png'])(
    'accept %s',
    async (contentType) => {
      expect(await statusOf(contentType)).toBe(204);
    },
  );

  it.each(['text/plain', 'application/jsonl', 'images/png', 'application/*', ''])(
    'reject %j with 415',
    async (contentType) => {
      expect(await statusOf(contentType)).toBe(415);
    },
  );

  it('reject a charset other than UTF-8, since the token does not sign it', async () => {
    expect(await statusOf('application/json; charset=utf-16le', '"a"')).toBe(415);
  });

  it('do not apply to data in the token', async () => {
    expect((await head(started.origin, signed({ data: {} }))).status).toBe(204);
  });

  it('do not record the id of a rejected event', async () => {
    const event = signedBody('{}');
    const text = { headers: { 'content-type': 'text/plain' } };
    const refused = await post(started.origin, event, text);
    expect(refused.headers['webhook-error']).toBe('unsupported_content_type');

    const accepted = await post(started.origin, event);
    expect([accepted.status, accepted.headers['webhook-duplicate']]).toEqual([204, undefined]);
  });
});
