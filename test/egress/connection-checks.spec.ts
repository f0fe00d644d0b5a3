import { once } from 'node:events';
import { Socket } from 'node:net';
import { describe, expect, it } from '@jest/globals';
import { watchPeer } from '../../lib/egress/guarded-agent.js';
import { EgressPolicy } from '../../lib/egress/egress-policy.js';

describe('a connection that is reset at once', () => {
  it('emits an error, so that a client does not wait for TLS forever', async () => {
    const socket = new Socket();
    watchPeer(new EgressPolicy({}), socket);
    const failed = once(socket, 'error');
    const closed = once(socket, 'close').then(() => ['closed without an error']);
    socket.emit('connect');

    const [error] = (await Promise.race([failed, closed])) as [unknown];
    expect(error).toMatchObject({ code: 'ECONNRESET' });
  });
});
