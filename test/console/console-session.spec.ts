import { describe, expect, it } from '@jest/globals';
import { requireLoopback } from '../../lib/console/console-session.js';

describe('an unguarded console', () => {
  const answers = (remoteAddress: string | undefined): boolean => {
    try {
      requireLoopback({ headers: { host: 'localhost:3000' }, socket: { remoteAddress } as never });
      return true;
    } catch {
      return false;
    }
  };

  it.each(['127.0.0.1', '127.9.9.9', '::1', '::ffff:127.0.0.1'])('answers %s', (address) => {
    expect(answers(address)).toBe(true);
  });

  it.each(['192.0.2.2', '::ffff:192.0.2.2', 'fe80::1', '1127.0.0.1', undefined])(
    'refuses %s, which may send any host name',
    (address) => {
      expect(answers(address)).toBe(false);
    },
  );
});
