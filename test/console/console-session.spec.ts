import { describe, expect, it } from '@jest/globals';
import { requireLoopback } from '../../lib/console/console-session.js';

describe('an unguarded console', () => {
  const answers = (remoteAddress: string | undefined, host = 'localhost:3000'): boolean => {
    try {
      requireLoopback({ headers: { host }, socket: { remoteAddress } as never });
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

  it.each(['localhost', '[::1]:3000', '127.0.0.2:80', 'a.b.localhost:3000'])(
    'answers at %s',
    (host) => {
      expect(answers('127.0.0.1', host)).toBe(true);
    },
  );

  it.each(['', 'shop.example', 'localhost:3000.example', 'localhost:x', '192.0.2.2:3000'])(
    'refuses the host %j',
    (host) => {
      expect(answers('127.0.0.1', host)).toBe(false);
    },
  );
});
