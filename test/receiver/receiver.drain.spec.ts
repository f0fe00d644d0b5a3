import { describe, expect, it } from '@jest/globals';
import { ReceiverDrain } from '../../lib/receiver/receiver.drain.js';

describe('ReceiverDrain', () => {
  // Nest 11 calls the shutdown hooks again for a signal and a close() at the same time.
  it('ends every shutdown when the last request has ended', async () => {
    const drain = new ReceiverDrain();
    drain.enter();
    const closed = Promise.all([drain.close(), drain.close()]);
    drain.leave();
    await closed;

    expect(drain.abortRest()).toBe(0);
  });
});
