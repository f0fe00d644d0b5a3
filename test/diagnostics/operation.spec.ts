import { subscribe, unsubscribe } from 'node:diagnostics_channel';
import { describe, expect, it } from '@jest/globals';
import { type Operation, OperationChannels } from '../../lib/diagnostics/operation.js';

const makeFacts = (): { readonly event: string } => ({ event: 'order.created' });
const outcome = { of: (result: string) => ({ result }), failed: () => ({ result: 'failed' }) };

describe('OperationChannels', () => {
  it('creates nothing without a subscriber', async () => {
    const channels = new OperationChannels('test:starting', 'test:ended');
    const refuse = (): never => {
      throw new Error('no facts are needed');
    };

    expect(channels.now()).toBeUndefined();
    expect(channels.begin(refuse)).toBeUndefined();
    expect(await channels.observe(refuse, (operation) => String(operation), outcome)).toBe(
      'undefined',
    );
  });

  it('publishes facts and outcome once, also if the work fails', async () => {
    const channels = new OperationChannels<object, object>('test:starting', 'test:ended');
    const messages: unknown[] = [];
    const listen = (message: unknown): void => void messages.push(message);
    subscribe('test:ended', listen);
    const work = async (): Promise<string> => 'done';
    const fail = async (): Promise<string> => {
      throw new TypeError('no');
    };
    await channels.observe(makeFacts, work, outcome);
    await expect(channels.observe(makeFacts, fail, outcome)).rejects.toThrow(TypeError);
    const operation = channels.begin(makeFacts);
    operation?.end({ result: 'first' });
    operation?.end({ result: 'second' });
    unsubscribe('test:ended', listen);

    const durationMs = expect.any(Number) as unknown;
    expect(messages).toEqual(
      ['done', 'failed', 'first'].map((result) => ({ event: 'order.created', result, durationMs })),
    );
  });

  it('runs the work within the tracer that a subscriber attaches', async () => {
    const channels = new OperationChannels<object, object>('test:starting', 'test:ended');
    const steps: string[] = [];
    const attach = (message: unknown): void => {
      (message as Operation<object, object>).tracer = {
        trace: { traceparent: '00-1' },
        run: (work) => {
          steps.push('run');
          return work();
        },
        send: (request) => request(),
        end: () => steps.push('end'),
      };
    };
    subscribe('test:starting', attach);
    await channels.observe(
      makeFacts,
      (operation) => void steps.push(operation?.trace?.traceparent ?? 'none'),
      { of: () => ({}), failed: () => ({}) },
    );
    unsubscribe('test:starting', attach);

    expect(steps).toEqual(['run', '00-1', 'end']);
  });
});
