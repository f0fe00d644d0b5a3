import { describe, expect, it } from '@jest/globals';
import { ProfileChoice } from '../../lib/token/profiles/profile.js';
import type { WebhookProfile } from '../../lib/token/index.js';

const SPEC = 'webhook-token';
const OLD = 'swt-draft-00';
const NEW = 'swt-draft-02';
const ALL: WebhookProfile[] = [SPEC, OLD, NEW];

const inline = { event: 'order.created', data: { id: 7 } };
const hashed = { event: 'order.created', hash: 'sha256:00' };
const base64 = { event: 'order.created', data: 'e30=' };
const reference = { event: 'order.created', data: { hash: '00', size: 0 } };
const named = { event: 'order.created', data: { hash: '00', hashAlg: 'SHA-256', size: 0 } };
const stamp = { ...named, hash: 'sha256:00' };

describe('the profile of a token', () => {
  it.each<[WebhookProfile[], string | undefined, unknown, WebhookProfile]>([
    [[SPEC], 'JWT', inline, SPEC],
    [[SPEC], 'JWT', reference, SPEC],
    [[SPEC], 'JWT', base64, SPEC],
    [[SPEC], 'JWT', stamp, SPEC],
    [[SPEC], 'JWT', undefined, SPEC],
    [[OLD], 'JWT', inline, OLD],
    [[OLD], 'JWT', hashed, OLD],
    [[OLD], 'SWT', inline, OLD],
    [[OLD], undefined, inline, OLD],
    [[NEW], 'SWT', hashed, NEW],
    [[NEW], 'SWT', base64, NEW],
    [[SPEC, OLD], 'JWT', inline, SPEC],
    [[SPEC, OLD], 'JWT', hashed, SPEC],
    [[SPEC, OLD], 'application/jwt', hashed, SPEC],
    [[SPEC, OLD], 'JWT', 'nothing', SPEC],
    [[SPEC, OLD], 'JWT', base64, OLD],
    [[SPEC, OLD], 'JWT', { event: 'order.created', data: null }, OLD],
    [[SPEC, OLD], 'JWT', reference, OLD],
    [[SPEC, OLD], 'JWT', named, OLD],
    [[SPEC, OLD], 'JWT', stamp, OLD],
    [[SPEC, OLD], 'JWT', { data: { ...named.data, name: 'a file' } }, SPEC],
    [[SPEC, OLD], 'JWT', { data: { hash: '00', size: '0' } }, SPEC],
    [[SPEC, OLD], 'JWT', { data: { hash: '00' } }, SPEC],
    [[SPEC, OLD], 'SWT', hashed, OLD],
    [ALL, 'SWT', inline, NEW],
    [ALL, 'SWT', base64, NEW],
    [ALL, 'JWT', base64, OLD],
    [ALL, 'JWT', inline, SPEC],
    [ALL, 'whatever', inline, OLD],
    [[OLD, NEW], 'JWT', hashed, OLD],
    [[SPEC, NEW], 'JWT', base64, SPEC],
  ])('with %j, typ %j and %j is %s', (enabled, typ, webhook, expected) => {
    const choice = new ProfileChoice(enabled);

    expect(choice.accepts(typ)).toBe(true);
    expect(choice.choose(typ, webhook).name).toBe(expected);
    // The order of the listed profiles does not matter.
    expect(new ProfileChoice(enabled.toReversed()).choose(typ, webhook).name).toBe(expected);
  });

  it.each<[WebhookProfile[], unknown]>([
    [[SPEC], 'SWT'],
    [[SPEC], undefined],
    [[SPEC], 'JOSE'],
    [[NEW], 'JWT'],
    [[NEW], 'swt'],
    [[NEW], 'application/swt'],
    [[NEW], undefined],
    [[SPEC, NEW], 'swt'],
    [[OLD, NEW], 'swt'],
    [ALL, 'application/SWT'],
    [ALL, 7],
    [[OLD], null],
  ])('with %j does not exist for typ %j', (enabled, typ) => {
    expect(new ProfileChoice(enabled).accepts(typ)).toBe(false);
  });
});
