import { afterEach, describe, expect, it, jest } from '@jest/globals';
import { Logger } from '@nestjs/common';
import { ExpressAdapter } from '@nestjs/platform-express';
import { Test } from '@nestjs/testing';
import {
  WebhookModule,
  type WebhookModuleOptions,
  WebhookPublisher,
  WebhookVerifier,
} from 'nestjs-webhook-token';
import { TestClock } from 'nestjs-webhook-token/testing';
import { configurationProblems } from '../fixtures/configuration-problems.js';
import { ISSUER, SECRET, receiverOptions, startApp } from '../fixtures/receiver-app.js';

const receiver = (change: object): unknown => receiverOptions(change);
const issuer = (change: object): unknown =>
  receiver({ issuers: [{ issuer: ISSUER, secret: SECRET, ...change }] });
const replay = (change: object): unknown => receiver({ replay: change });

describe('an invalid configuration', () => {
  it.each<[string, unknown, RegExp]>([
    ['no options', undefined, /^WebhookModule: has no options/],
    ['a string as options', 'receiver', /^WebhookModule: has no options/],
    ['receiver: null', { receiver: null }, /^receiver: must be an object/],
    ['a string as receiver', { receiver: 'hooks' }, /^receiver: must be an object/],
    [
      'a hole in the list of receivers',
      // eslint-disable-next-line no-sparse-arrays
      { receiver: [, receiverOptions().receiver] },
      /^receiver\[0\]: must be an object/,
    ],
    ['publisher: null', { publisher: null }, /^publisher: must be an object/],
    ['a string as publisher', { publisher: 'shop' }, /^publisher: must be an object/],
    ['a list of publishers', { publisher: [] }, /^publisher: must be an object/],
    ['a clock without wakeAt', { clock: { now: Date.now } }, /^clock: .* now and wakeAt/],
    ["checkStores 'false'", { checkStores: 'false' }, /^checkStores: must be a boolean/],
    ['Date as clock', { clock: Date }, /^clock: must be a WebhookClock/],
    [
      'a single object as issuers',
      receiver({ issuers: { issuer: ISSUER } }),
      /^receiver\.issuers: must/,
    ],
    ['no issuers', receiver({ issuers: undefined }), /^receiver\.issuers: add at least one issuer/],
    ['null as an issuer', receiver({ issuers: [null] }), /^receiver\.issuers\[0\]: must be an obj/],
    [
      'a string as an issuer',
      receiver({ issuers: [ISSUER] }),
      /^receiver\.issuers\[0\]: must be an/,
    ],
    ['a number as audience', receiver({ audience: 7 }), /^receiver\.audience: must be/],
    ['an empty list as audience', receiver({ audience: [] }), /^receiver\.audience: must be/],
    ['an empty audience', receiver({ audience: ['a', ''] }), /^receiver\.audience: must be/],
    ['a number as path', receiver({ path: 1 }), /^receiver\.path: must be a string/],
    [
      'a single string as profiles',
      receiver({ profiles: 'webhook-token' }),
      /^receiver\.profiles: must/,
    ],
    ['no profile', receiver({ profiles: [] }), /^receiver\.profiles: must/],
    [
      'a misspelt profile',
      receiver({ profiles: ['webhook-tokens'] }),
      /^receiver\.profiles\[0\]: .*did you mean 'webhook-token'/,
    ],
    ['an empty name', receiver({ name: '' }), /^receiver\.name: must be a non-empty string/],
    ['a number as name', receiver({ name: 1 }), /^receiver\.name: must be a non-empty string/],
    [
      "requireHash 'false'",
      receiver({ requireHash: 'false' }),
      /^receiver\.requireHash: must be a boolean/,
    ],
    ['requireHash 0', receiver({ requireHash: 0 }), /^receiver\.requireHash: must be a boolean/],
    ["requireHash ''", receiver({ requireHash: '' }), /^receiver\.requireHash: must be a boolean/],
    [
      "allowWeakSecrets 'true'",
      receiver({ allowWeakSecrets: 'true' }),
      /^receiver\.allowWeakSecre/,
    ],
    [
      'an unknown value of unhandledEvent',
      receiver({ unhandledEvent: 'ignore' }),
      /'acknowledge' or/,
    ],
    ['validation true', receiver({ validation: true }), /^receiver\.validation: .*ValidationPipe/],
    ['replay null', receiver({ replay: null }), /^receiver\.replay: must be an object/],
    ['a string as replay', receiver({ replay: 'memory' }), /^receiver\.replay: must be an object/],
    ['a Map as store', replay({ store: new Map() }), /^receiver\.replay\.store: must be a Replay/],
    [
      'an unknown value of onDuplicate',
      replay({ onDuplicate: 'drop' }),
      /^receiver\.replay\.onDuplica/,
    ],
    [
      'a single string as events',
      issuer({ events: 'order.*' }),
      /^receiver\.issuers\[0\]\.events: must/,
    ],
    ['a number as event', issuer({ events: [1] }), /^receiver\.issuers\[0\]\.events: must/],
    [
      'a single object as keys',
      issuer({ keys: { key: SECRET } }),
      /^receiver\.issuers\[0\]\.keys: must/,
    ],
    [
      'only a malformed key',
      issuer({ secret: undefined, keys: { key: SECRET } }),
      /^receiver\.issuers\[0\]\.keys: must/,
    ],
    [
      'an unset environment variable',
      issuer({ secret: undefined }),
      /^receiver\.issuers\[0\]\.secret: the secret of "https:\/\/shop\.example" is undefined: is the environment variable set\?$/,
    ],
    [
      'one unset environment variable of two',
      issuer({ secret: [SECRET, undefined] }),
      /^receiver\.issuers\[0\]\.secret\[1\]: the secret of "https:\/\/shop\.example" is undefined/,
    ],
    ['nothing', {}, /^WebhookModule: nothing is configured; set "receiver" .* "publisher"/],
    [
      'isuers',
      { receiver: { isuers: [{ issuer: ISSUER, secret: SECRET }] } },
      /^receiver\.isuers: unknown option; did you mean "issuers"\?$/,
    ],
    [
      'secrt',
      issuer({ secret: undefined, secrt: SECRET }),
      /^receiver\.issuers\[0\]\.secrt: unknown option; did you mean "secret"\?$/,
    ],
    [
      'a path that is already used',
      { receiver: [receiverOptions().receiver, receiverOptions({ name: 'b' }).receiver] },
      /^receiver\[1\]\.path: "webhooks" is taken by receiver "default"; choose another path$/,
    ],
    [
      'an empty list of content types',
      issuer({ contentTypes: [] }),
      /contentTypes: must be a list of media types/,
    ],
    [
      'a content type with a parameter',
      issuer({ contentTypes: ['application/json; charset=utf-8'] }),
      /^receiver\.issuers\[0\]\.contentTypes: must be a list of media types without parameters/,
    ],
    ['receivers', { receivers: [] }, /^receivers: unknown option; did you mean "receiver"\?$/],
    [
      'a secret outside a receiver',
      { secret: SECRET },
      /^secret: unknown option; .*receiver, publisher/,
    ],
    ['Audience', receiver({ Audience: 'a' }), /^receiver\.Audience: .* did you mean "audience"\?$/],
    ['requireHashes', receiver({ requireHashes: true }), /did you mean "requireHash"\?$/],
    ['replay.windows', replay({ windows: '1h' }), /^receiver\.replay\.windows: .*mean "window"\?$/],
    [
      'issuers[0].event',
      issuer({ event: ['a.b'] }),
      /^receiver\.issuers\[0\]\.event: .*"events"\?$/,
    ],
  ])('fails with exactly one error: %s', async (_name, options, message) => {
    expect(await configurationProblems(options)).toEqual([expect.stringMatching(message)]);
  });

  it('fails with a list of all errors, without secrets', async () => {
    const problems = await configurationProblems({
      receivers: 1,
      clock: 'now',
      receiver: [
        {
          name: 5,
          path: 'a/:b',
          clockTolerance: '60',
          issuers: [null, { issuer: '', secret: SECRET }, { issuer: ISSUER, secret: 'too-short' }],
          replay: { store: {}, window: 'long' },
        },
        null,
      ],
      publisher: 'shop',
    });

    expect(
      problems.map((line) => line.replace(/: .*/s, '')).sort((a, b) => (a < b ? -1 : 1)),
    ).toEqual([
      'clock',
      'publisher',
      'receiver[0].clockTolerance',
      'receiver[0].issuers[0]',
      'receiver[0].issuers[1].issuer',
      'receiver[0].issuers[2].secret',
      'receiver[0].name',
      'receiver[0].path',
      'receiver[0].replay.store',
      'receiver[0].replay.window',
      'receiver[1]',
      'receivers',
    ]);
    expect(problems.join()).not.toContain('too-short');
  });

  it("does not check other members of the application's own class instances", async () => {
    class Configuration {
      readonly environment = { name: 'production' };
      get receiver(): unknown {
        return receiverOptions().receiver;
      }
    }

    const useClass = class {
      createWebhookOptions(): WebhookModuleOptions {
        return new Configuration() as WebhookModuleOptions;
      }
    };
    const imports = [WebhookModule.forRootAsync({ useClass })];
    const module = await Test.createTestingModule({ imports }).compile();

    expect(module.get(WebhookVerifier).receiver().name).toBe('default');
  });
});

describe('a configuration with durations', () => {
  const publisher = { issuer: ISSUER, secret: SECRET };
  const warn = jest.spyOn(Logger.prototype, 'warn').mockImplementation(() => undefined);
  afterEach(() => {
    warn.mockClear();
  });

  it('may have units where a number is seconds', async () => {
    const clock = new TestClock();
    const issuers = [{ issuer: ISSUER, secret: SECRET }];
    const options: WebhookModuleOptions = {
      clock,
      publisher: { ...publisher, tokenLifetime: '5m' },
      receiver: [
        { issuers, clockTolerance: '90s', maxTokenLifetime: '5m' },
        { name: 'strict', issuers, maxTokenLifetime: '299s' },
      ],
    };
    const imports = [WebhookModule.forRoot(options)];
    const module = await Test.createTestingModule({ imports }).compile();
    const request = await module.get(WebhookPublisher).sign('https://crm.example/', 'a.b', {});
    const codeOf = async (receiver?: string): Promise<string> => {
      const { code = 'accepted' } = await module
        .get(WebhookVerifier)
        .explain(request, { receiver });
      return code;
    };

    expect([await codeOf('default'), await codeOf('strict')]).toEqual([
      'accepted',
      'token_too_old',
    ]);
    await clock.advance(389_000);
    expect(await codeOf('default')).toBe('accepted');
    await clock.advance(1_000);
    expect(await codeOf('default')).toBe('token_expired');
  });

  it.each([
    [receiver({ clockTolerance: '6m' }), /^receiver\.clockTolerance: must be 0 to 300 seconds/],
    [receiver({ maxTokenLifetime: 'long' }), /^receiver\.maxTokenLifetime: .* such as '60s'$/],
    [{ publisher: { ...publisher, tokenLifetime: '1.5s' } }, /^publisher\.tokenLifetime: must be/],
  ])('fails for %j', async (options, message) => {
    expect(await configurationProblems(options)).toEqual([expect.stringMatching(message)]);
  });

  it('logs a timeout in milliseconds that was probably meant as seconds', async () => {
    await configurationProblems({ publisher: { ...publisher, timeout: 15 } });
    await configurationProblems({ publisher: { ...publisher, timeout: '500ms' } });

    expect(warn.mock.calls).toEqual([
      ["publisher.timeout is 15 milliseconds; write '15s' for seconds"],
    ]);
  });

  it('logs two issuers that differ only by a slash', async () => {
    const issuers = [ISSUER, `${ISSUER}/`].map((name) => ({ issuer: name, secret: SECRET }));
    const options = receiverOptions({ issuers });
    const { app } = await startApp(new ExpressAdapter(), { options });
    await app.close();

    expect(warn.mock.calls.flat()).toContainEqual(
      expect.stringContaining('differ only by the slash'),
    );
  });

  it('logs issuers that have the same secret', async () => {
    const issuers = ['alice', 'bob', 'carol', 'dora'].map((name) => ({
      issuer: `https://${name}.example`,
      secret: name === 'dora' ? `another-${SECRET}` : SECRET,
    }));
    const options = receiverOptions({ issuers });
    const { app } = await startApp(new ExpressAdapter(), { options });
    await app.close();

    expect(warn.mock.calls.flat()).toContain(
      'The issuers "https://alice.example" and "https://bob.example" (and 1 more) have the same secret, so each can sign in the name of the others: give each its own',
    );
    expect(warn.mock.calls.flat().join()).not.toContain('dora');
  });
});
