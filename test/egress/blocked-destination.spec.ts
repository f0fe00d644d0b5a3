import { describe, expect, it } from '@jest/globals';
import { WebhookDestinationBlockedError } from 'nestjs-webhook-token';
import { blockedDestination } from '../../lib/egress/egress-policy.js';

const blocked = new WebhookDestinationBlockedError('refused');

describe('blockedDestination', () => {
  it.each([
    ['the error itself', blocked],
    ['a cause', new Error('outer', { cause: new TypeError('inner', { cause: blocked }) })],
    ['one of several attempts', new AggregateError([new Error('other'), blocked])],
    [
      'a cause of one of several attempts',
      new Error('outer', { cause: new AggregateError([new Error('one', { cause: blocked })]) }),
    ],
  ])('finds the refusal in %s', (_, error) => {
    expect(blockedDestination(error)).toBe(blocked);
  });

  it.each([
    ['another error', new Error('refused', { cause: new Error('destination_blocked') })],
    ['a look-alike', Object.assign(new Error('refused'), { code: 'destination_blocked' })],
    ['no error', 'destination_blocked'],
    ['null', null],
    ['nothing', undefined],
  ])('finds none in %s', (_, error) => {
    expect(blockedDestination(error)).toBeUndefined();
  });

  it('ends in a cycle of causes', () => {
    const one = new Error('one');
    const other = new Error('other', { cause: one });
    one.cause = other;

    expect(blockedDestination(one)).toBeUndefined();
  });
});
