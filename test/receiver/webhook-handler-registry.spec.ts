import { describe, expect, it } from '@jest/globals';
import * as fc from 'fast-check';
import { matchesEvent } from 'nestjs-webhook-token/token';
import {
  type WebhookHandler,
  WebhookHandlerRegistry,
} from '../../lib/receiver/handlers/webhook.dispatcher.js';

const segment = fc.constantFrom('a', 'b', 'c', 'order', 'a-b', 'A');
const eventName = fc.array(segment, { minLength: 2, maxLength: 6 }).map((parts) => parts.join('.'));
const pattern = fc
  .array(fc.oneof(segment, fc.constantFrom('*', '**', '**')), { minLength: 1, maxLength: 6 })
  .map((parts) => parts.join('.'))
  .filter((text) => text !== '*');

const handler = (name: string): WebhookHandler => ({ name, call: async () => undefined });

function registryOf(patterns: readonly string[]): WebhookHandlerRegistry {
  const registry = new WebhookHandlerRegistry();
  patterns.forEach((wanted, index) => registry.add(wanted, undefined, handler(`${index}`)));
  return registry;
}

const find = (registry: WebhookHandlerRegistry, event: string, receiver = 'default'): string[] =>
  registry.find(receiver, event).map(({ name }) => name);

describe('WebhookHandlerRegistry', () => {
  it('finds the handlers of every matching pattern, in the order of registration', () => {
    fc.assert(
      fc.property(fc.array(pattern, { maxLength: 12 }), eventName, (patterns, event) => {
        const expected = patterns.flatMap((wanted, index) =>
          matchesEvent(wanted, event) ? [`${index}`] : [],
        );

        expect(find(registryOf(patterns), event)).toEqual(expected);
      }),
      { numRuns: 1_000 },
    );
  });

  it('finds handlers that are added after a lookup', () => {
    const registry = registryOf(['order.*']);
    expect(find(registry, 'order.created')).toEqual(['0']);

    registry.add('**', undefined, handler('1'));

    expect(find(registry, 'order.created')).toEqual(['0', '1']);
  });

  it('finds a handler once if several of its patterns match', () => {
    const registry = new WebhookHandlerRegistry();
    const one = handler('one');
    for (const wanted of ['order.created', 'order.*', '**', '**.created', '*.**']) {
      registry.add(wanted, undefined, one);
    }

    expect(find(registry, 'order.created')).toEqual(['one']);
  });

  it('finds handlers of the receiver and those of every receiver', () => {
    const registry = new WebhookHandlerRegistry();
    registry.add('order.*', 'shop', handler('shop'));
    registry.add('order.*', undefined, handler('all'));

    expect(find(registry, 'order.created', 'shop')).toEqual(['shop', 'all']);
    expect(find(registry, 'order.created', 'billing')).toEqual(['all']);
  });

  it('finds the same handlers after its cache was full', () => {
    const registry = registryOf(['order.*', 'order.**']);
    const before = find(registry, 'order.created');

    for (let i = 0; i < 5_000; i++) find(registry, `order.n${i}`);

    expect(find(registry, 'order.created')).toEqual(before);
  });

  it.each(['toString.constructor', '__proto__.x'])('finds nothing for %s', (event) => {
    expect(find(registryOf(['order.*']), event)).toEqual([]);
  });

  it('stays fast with many wildcards', () => {
    const registry = registryOf([`${'**.a.'.repeat(25)}b`, '**.'.repeat(40) + 'b']);

    expect(find(registry, Array.from({ length: 60 }, () => 'a').join('.'))).toEqual([]);
  });
});
