import { describe, expect, it } from '@jest/globals';
import { adapters } from '../fixtures/adapters.js';
import { configurationProblems } from '../fixtures/configuration-problems.js';
import { post } from '../fixtures/http-client.js';
import { receiverOptions, signedBody, startApp } from '../fixtures/receiver-app.js';

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

  it.each([0, -1, 1.5, '10', NaN, null])('cannot be %p', async (maxJsonMembers) => {
    const options = receiverOptions({ maxJsonMembers } as object);

    expect(await configurationProblems(options)).toEqual([
      expect.stringMatching(/^receiver\.maxJsonMembers: must be a positive whole number/),
    ]);
  });
});
