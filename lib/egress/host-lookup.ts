import { AsyncResource } from 'node:async_hooks';
import dns, { type LookupAddress, type LookupAllOptions, type promises } from 'node:dns';
import { SystemClock, type WebhookClock } from '../clock/webhook-clock.js';

export interface HostLookupOptions extends LookupAllOptions {
  /** Whether the answer is still of use to the caller. A lookup that has not begun is then dropped. Default: it is. */
  readonly isWanted?: () => boolean;
}

/** Resolves a name to all of its addresses. `dns.lookup` is one. */
export type HostLookup = (
  hostname: string,
  options: HostLookupOptions,
  callback: (error: NodeJS.ErrnoException | null, addresses: LookupAddress[]) => void,
) => void;

export interface HostLookupsSetup {
  /** Decides the addresses. Default: `dns.lookup`. */
  readonly lookup?: HostLookup | undefined;
  /** Is asked whether the servers of a name answer. Default: c-ares. */
  readonly resolver?: Pick<promises.Resolver, 'resolve4' | 'resolve6'> | undefined;
  readonly clock?: WebhookClock | undefined;
  /** Threads of libuv. */
  readonly threads?: number | undefined;
}

interface Lookup {
  readonly key: string;
  readonly hostname: string;
  readonly options: LookupAllOptions;
  waiters: Waiter[];
}

interface Waiter {
  readonly isWanted: () => boolean;
  readonly callback: Parameters<HostLookup>[2];
}

/** Milliseconds after which a lookup is slow, and for which its name is remembered. */
const SLOW = 2_000;
const SLOW_MEMORY = 600_000;
const MOST_SLOW_NAMES = 1_000;

/** Milliseconds; the second try waits twice as long. */
const PROBE = { timeout: 1_000, tries: 2 };

/** Names that public name servers have no part in. */
const LOCAL = /^[^.]*\.*$|\.localhost\.*$/;

/**
 * Runs lookups so that names whose servers are silent do not stop the others.
 *
 * `dns.lookup` (getaddrinfo) blocks a thread of libuv for 10 to 20 s for such a name, cannot be cancelled, and gets only half of the
 * threads: by default, two names stop all lookups of the process. A lookup that is in doubt therefore runs in the lane, one at a time. A
 * lookup that has to wait for the lane meanwhile asks c-ares, which needs no thread, whether the servers of its name answer at all; if
 * so, it leaves the lane. Only `dns.lookup` decides the addresses, since c-ares does not know the hosts file, search domains and NSS.
 */
export class HostLookups {
  private readonly clock: WebhookClock;
  private readonly getAddresses: HostLookup;
  private resolver: HostLookupsSetup['resolver'];
  /** All that wait or run, so that callers share them. */
  private readonly lookups = new Map<string, Lookup>();
  /** Those that wait, in order: for the lane, or for any thread. */
  private readonly doubtful = new Set<Lookup>();
  private readonly answered = new Set<Lookup>();
  private isLaneBusy = false;
  /** Others that may begin now. With three threads or more, they all run at once, so that the time one takes is its own. */
  private free: number;
  /** Until when a name is slow. */
  private readonly slowNames = new Map<string, number>();

  constructor({
    lookup = (hostname, options, callback) => dns.lookup(hostname, options, callback),
    resolver,
    clock = new SystemClock(),
    threads = Number(process.env['UV_THREADPOOL_SIZE'] ?? 4),
  }: HostLookupsSetup = {}) {
    this.getAddresses = lookup;
    this.resolver = resolver;
    this.clock = clock;
    // As libuv does: half of the threads, rounded up. One of them is the lane's.
    this.free = Math.max(1, Math.floor((threads + 1) / 2) - 1 || 1);
  }

  readonly lookup: HostLookup = (hostname, { isWanted = () => true, ...options }, callback) => {
    // Otherwise it would run in the async context of another lookup, and so in the trace of another request.
    const waiter = { isWanted, callback: AsyncResource.bind(callback) };
    const key = JSON.stringify([hostname, options]);
    const shared = this.lookups.get(key);
    if (shared !== undefined) {
      this.dropUnwanted(shared);
      shared.waiters.push(waiter);
      return;
    }
    const lookup = { key, hostname, options, waiters: [waiter] };
    this.lookups.set(key, lookup);
    const isSlow = this.isSlow(hostname);
    (LOCAL.test(hostname) && !isSlow ? this.answered : this.doubtful).add(lookup);
    this.begin();
    if (this.doubtful.has(lookup) && !isSlow) void this.probe(lookup);
  };

  /** Begins all lookups that have a thread. */
  private begin(): void {
    let next: Lookup | undefined;
    while (this.free > 0 && (next = this.take(this.answered)) !== undefined) {
      this.free--;
      this.run(next, () => this.free++);
    }
    while (
      !this.isLaneBusy &&
      (next = this.take(this.answered) ?? this.take(this.doubtful)) !== undefined
    ) {
      this.isLaneBusy = true;
      this.run(next, () => (this.isLaneBusy = false));
    }
  }

  private take(waiting: Set<Lookup>): Lookup | undefined {
    for (const lookup of waiting) {
      waiting.delete(lookup);
      this.dropUnwanted(lookup);
      if (lookup.waiters.length > 0) return lookup;
      this.lookups.delete(lookup.key);
    }
    return undefined;
  }

  private dropUnwanted(lookup: Lookup): void {
    const { waiters, hostname } = lookup;
    lookup.waiters = [];
    for (const waiter of waiters) {
      if (waiter.isWanted()) lookup.waiters.push(waiter);
      // Called all the same: an agent may count the connection until then.
      else process.nextTick(waiter.callback, tooLate(hostname), []);
    }
  }

  private run(lookup: Lookup, release: () => void): void {
    const { key, hostname, options } = lookup;
    const start = this.clock.now();
    let hasEnded = false;
    const end: Waiter['callback'] = (error, addresses) => {
      if (hasEnded) return;
      hasEnded = true;
      if (this.clock.now() - start > SLOW) this.rememberSlow(hostname);
      this.lookups.delete(key);
      release();
      this.begin();
      // Later, so that one that throws does not keep the others from the answer.
      for (const { callback } of lookup.waiters) process.nextTick(callback, error, addresses);
    };
    try {
      this.getAddresses(hostname, options, end);
    } catch (error) {
      // For options that it does not know.
      end(error as Error, []);
    }
  }

  /** Lets a lookup leave the lane once servers have answered, whatever the answer. */
  private async probe(lookup: Lookup): Promise<void> {
    const { hostname } = lookup;
    const hasAnswer = async (method: 'resolve4' | 'resolve6'): Promise<boolean> => {
      try {
        this.resolver ??= new dns.promises.Resolver(PROBE);
        await this.resolver[method](hostname);
        return true;
      } catch (error) {
        return (error as NodeJS.ErrnoException).code !== dns.TIMEOUT;
      }
    };
    // Both, as getaddrinfo waits for both.
    const answers = await Promise.all([hasAnswer('resolve4'), hasAnswer('resolve6')]);
    if (answers.includes(false) || !this.doubtful.delete(lookup)) return;
    this.answered.add(lookup);
    this.begin();
  }

  private isSlow(hostname: string): boolean {
    return (this.slowNames.get(hostname) ?? 0) > this.clock.now();
  }

  /** Its servers may answer c-ares and not the lookup. */
  private rememberSlow(hostname: string): void {
    this.slowNames.delete(hostname);
    this.slowNames.set(hostname, this.clock.now() + SLOW_MEMORY);
    if (this.slowNames.size <= MOST_SLOW_NAMES) return;
    const [oldest] = this.slowNames.keys();
    this.slowNames.delete(oldest!);
  }
}

/** Resolves names for all parts of the process: they share its threads. */
export const lookupHost: HostLookup = new HostLookups().lookup;

function tooLate(hostname: string): NodeJS.ErrnoException {
  return Object.assign(new Error(`getaddrinfo EAI_AGAIN ${hostname}`), {
    code: 'EAI_AGAIN',
    syscall: 'getaddrinfo',
  });
}
