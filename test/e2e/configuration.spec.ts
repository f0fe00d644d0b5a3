import { describe, expect, it } from '@jest/globals';
import { WebhookConfigurationError } from '../../lib/errors/webhook.error.js';
import { resolveWebhookOptions } from '../../lib/webhook-options.resolver.js';
import type { WebhookModuleOptions } from '../../lib/webhook-module-options.interface.js';
import { ISSUER, SECRET, receiverOptions } from '../fixtures/receiver-app.js';

/** What start-up says: `path: message` of every fault. */
function faultsOf(options: unknown): string[] {
  try {
    resolveWebhookOptions(options as WebhookModuleOptions);
    return [];
  } catch (error) {
    if (!(error instanceof WebhookConfigurationError)) throw error;
    return error.faults.map(({ path, message }) => `${path}: ${message}`);
  }
}

const receiver = (change: object): unknown => receiverOptions(change);
const issuer = (change: object): unknown =>
  receiver({ issuers: [{ issuer: ISSUER, secret: SECRET, ...change }] });
const replay = (change: object): unknown => receiver({ replay: change });

describe('a wrong configuration', () => {
  it.each<[string, unknown, RegExp]>([
    ['no options', undefined, /^WebhookModule: has no options/],
    ['a text for options', 'receiver', /^WebhookModule: has no options/],
    ['no receiver, by null', { receiver: null }, /^receiver: must be an object/],
    ['a text for a receiver', { receiver: 'hooks' }, /^receiver: must be an object/],
    [
      'a hole among the receivers',
      // eslint-disable-next-line no-sparse-arrays
      { receiver: [, receiverOptions().receiver] },
      /^receiver\[0\]: must be an object/,
    ],
    ['no publisher, by null', { publisher: null }, /^publisher: must be an object/],
    ['a text for a publisher', { publisher: 'shop' }, /^publisher: must be an object/],
    ['a list of publishers', { publisher: [] }, /^publisher: must be an object/],
    ['a clock that cannot wake', { clock: { now: Date.now } }, /^clock: .* now and wakeAt/],
    ["checkStores 'false'", { checkStores: 'false' }, /^checkStores: must be a boolean/],
    ['Date for a clock', { clock: Date }, /^clock: must be a WebhookClock/],
    ['issuers that are one', receiver({ issuers: { issuer: ISSUER } }), /^receiver\.issuers: must/],
    ['no issuers', receiver({ issuers: undefined }), /^receiver\.issuers: add at least one issuer/],
    [
      'null for an issuer',
      receiver({ issuers: [null] }),
      /^receiver\.issuers\[0\]: must be an obj/,
    ],
    [
      'a text for an issuer',
      receiver({ issuers: [ISSUER] }),
      /^receiver\.issuers\[0\]: must be an/,
    ],
    ['an audience that is a number', receiver({ audience: 7 }), /^receiver\.audience: must be/],
    ['an empty list as audience', receiver({ audience: [] }), /^receiver\.audience: must be/],
    ['an empty audience', receiver({ audience: ['a', ''] }), /^receiver\.audience: must be/],
    ['a path that is a number', receiver({ path: 1 }), /^receiver\.path: must be a string/],
    ['profiles that are one', receiver({ profiles: 'webhook-token' }), /^receiver\.profiles: must/],
    ['an empty name', receiver({ name: '' }), /^receiver\.name: must be a non-empty string/],
    [
      'a name that is a number',
      receiver({ name: 1 }),
      /^receiver\.name: must be a non-empty string/,
    ],
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
    ['another word for unhandledEvent', receiver({ unhandledEvent: 'ignore' }), /'acknowledge' or/],
    ['validation true', receiver({ validation: true }), /^receiver\.validation: .*ValidationPipe/],
    ['replay null', receiver({ replay: null }), /^receiver\.replay: must be an object/],
    ['replay a text', receiver({ replay: 'memory' }), /^receiver\.replay: must be an object/],
    [
      'a Map for a store',
      replay({ store: new Map() }),
      /^receiver\.replay\.store: must be a Replay/,
    ],
    [
      'another word for onDuplicate',
      replay({ onDuplicate: 'drop' }),
      /^receiver\.replay\.onDuplica/,
    ],
    ['events that are one', issuer({ events: 'order.*' }), /^receiver\.issuers\[0\]\.events: must/],
    ['an event that is a number', issuer({ events: [1] }), /^receiver\.issuers\[0\]\.events: must/],
    ['keys that are one', issuer({ keys: { key: SECRET } }), /^receiver\.issuers\[0\]\.keys: must/],
    [
      'no key but a misshapen one',
      issuer({ secret: undefined, keys: { key: SECRET } }),
      /^receiver\.issuers\[0\]\.keys: must/,
    ],
    [
      'a variable that is not set',
      issuer({ secret: undefined }),
      /^receiver\.issuers\[0\]\.secret: the secret of "https:\/\/shop\.example" is undefined: is the environment variable set\?$/,
    ],
    [
      'one of two variables that is not set',
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
      'a path that is taken',
      { receiver: [receiverOptions().receiver, receiverOptions({ name: 'b' }).receiver] },
      /^receiver\[1\]\.path: "webhooks" is taken by receiver "default"; choose another path$/,
    ],
    [
      'no content type',
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
      'a secret outside of a receiver',
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
  ])('is refused with its one fault: %s', (_name, options, message) => {
    expect(faultsOf(options)).toEqual([expect.stringMatching(message)]);
  });

  it('has all its faults listed at once, and no secret in them', () => {
    const faults = faultsOf({
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

    expect(faults.map((line) => line.split(': ')[0])).toEqual([
      'receivers',
      'publisher',
      'clock',
      'receiver[0].name',
      'receiver[0].issuers[0]',
      'receiver[0].replay.store',
      'receiver[0].issuers[1].issuer',
      'receiver[0].issuers[2].secret',
      'receiver[0].clockTolerance',
      'receiver[0].path',
      'receiver[0].replay.window',
      'receiver[1]',
    ]);
    expect(faults.join()).not.toContain('too-short');
  });

  it("leaves alone what an instance of the application's own class keeps besides", () => {
    class Configuration {
      readonly environment = { name: 'production' };
      get receiver(): unknown {
        return receiverOptions().receiver;
      }
    }
    const resolved = resolveWebhookOptions(new Configuration() as WebhookModuleOptions);

    expect([...resolved.receivers.keys()]).toEqual(['default']);
  });
});
