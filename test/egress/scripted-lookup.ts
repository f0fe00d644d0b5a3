import type dns from 'node:dns';
import type { LookupAddress, LookupOptions } from 'node:dns';
import { isIP } from 'node:net';

/** The addresses of one lookup, or the code of a failure. */
export type Answer = readonly string[] | string;

type Callback = (error: Error | null, address?: string | LookupAddress[], family?: number) => void;

/** A resolver with one answer to every lookup, in the form of `dns.lookup`. */
export function lookupOf(answer: Answer, asked: string[] = []): typeof dns.lookup {
  return changingLookup([answer], asked);
}

/** A resolver that answers the n-th lookup with the n-th answer, and later ones with the last. */
export function changingLookup(
  answers: readonly Answer[],
  asked: string[] = [],
): typeof dns.lookup {
  const lookup = (hostname: string, options: LookupOptions, callback: Callback): void => {
    const answer = answers[Math.min(asked.push(hostname), answers.length) - 1]!;
    setImmediate(() => {
      if (typeof answer === 'string') {
        callback(Object.assign(new Error(`getaddrinfo ${answer} ${hostname}`), { code: answer }));
        return;
      }
      const found = answer.map((address) => ({ address, family: isIP(address) }));
      if (options.all) callback(null, found);
      else callback(null, found[0]?.address, found[0]?.family);
    });
  };
  return lookup as typeof dns.lookup;
}
