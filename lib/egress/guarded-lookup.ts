import type dns from 'node:dns';
import type { LookupFunction } from 'node:net';
import type { EgressPolicy } from './egress-policy.js';

/**
 * A lookup whose answers are allowed ones. The connection is made to the very answer that was checked,
 * so a name that changes its address between two questions (DNS rebinding) gains nothing.
 */
export function guardedLookup(policy: EgressPolicy, lookup: typeof dns.lookup): LookupFunction {
  return (hostname, options, callback) => {
    // All of them, also when one is asked for: a name with one bad address is refused, not tried by luck.
    lookup(hostname, { ...options, all: true }, (error, addresses) => {
      if (error) return callback(error, '');
      const [first] = addresses;
      if (first === undefined) return callback(notFound(hostname), '');
      try {
        policy.checkResolved(hostname, addresses);
      } catch (blocked) {
        return callback(blocked as Error, '');
      }
      return options.all ? callback(null, addresses) : callback(null, first.address, first.family);
    });
  };
}

/** Some resolvers answer nothing without calling it an error, and a socket would then wait for ever. */
function notFound(hostname: string): NodeJS.ErrnoException {
  return Object.assign(new Error(`getaddrinfo ENOTFOUND ${hostname}`), {
    code: 'ENOTFOUND',
    syscall: 'getaddrinfo',
  });
}
