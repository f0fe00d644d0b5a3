import { afterEach, describe, expect, it, jest } from '@jest/globals';
import { resolveWebhookOptions } from '../../lib/webhook-options.resolver.js';
import { parseJsonPayload } from '../../lib/token/payload.js';
import { adapters } from '../fixtures/adapters.js';
import { post } from '../fixtures/http-client.js';
import { receiverOptions, signedBody, startApp } from '../fixtures/receiver-app.js';

const parse = (text: string, maxMembers: number): unknown =>
  parseJsonPayload(Buffer.from(text), 'application/json', maxMembers);

describe('a JSON body', () => {
  afterEach(() => {
    jest.restoreAllMocks();
  });

  it('may have as many members as allowed', () => {
    expect(parse('{"list":[1,2],"more":{"a":"x,[{:"}}', 5)).toEqual({
      list: [1, 2],
      more: { a: 'x,[{:' },
    });
  });

  it('is refused if it has one more, at any level', () => {
    expect(() => parse('{"list":[1,2],"more":{"a":"x,[{:"}}', 4)).toThrow(
      expect.objectContaining({
        code: 'invalid_payload',
        message: 'the body has more than 4 members; maxJsonMembers of the receiver sets the limit',
      }),
    );
  });

  it('is refused before it is parsed', () => {
    const members = Array.from({ length: 500_000 }, (_, i) => `"k${i}":1`);
    const body = `{${members.join(',')}}`;
    const parser = jest.spyOn(JSON, 'parse');

    expect(() => parse(body, 100_000)).toThrow('more than 100000 members');
    expect(parser).not.toHaveBeenCalled();
  });

  it('is counted in the charset that its content type names', () => {
    const utf16 = Buffer.from('[1,2,3]', 'utf16le');

    expect(() => parseJsonPayload(utf16, 'application/json; charset=utf-16le', 2)).toThrow(
      'more than 2 members',
    );
  });
});

describe('maxJsonMembers of a receiver', () => {
  it('refuses a body beyond it, and leaves its id free', async () => {
    const [, createAdapter] = adapters[0]!;
    const options = receiverOptions({ maxJsonMembers: 3 });
    const { app, origin } = await startApp(createAdapter(), { options });
    const id = 'evt-1';

    const answers = [
      await post(origin, signedBody('[1,2,3,4]', { id })),
      await post(origin, signedBody('[1,2,3,4]', { id })),
      await post(origin, signedBody('[1,2,3]', { id })),
    ];
    await app.close();

    expect(answers.map(({ status, json }) => [status, json?.['code']])).toEqual([
      [400, 'invalid_payload'],
      [400, 'invalid_payload'],
      [204, undefined],
    ]);
  });

  it.each([0, -1, 1.5, '10', NaN, null])('cannot be %p', (maxJsonMembers) => {
    const options = receiverOptions({ maxJsonMembers } as object);

    expect(() => resolveWebhookOptions(options)).toThrow(
      'receiver.maxJsonMembers: must be a positive whole number',
    );
  });
});
