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

/** Milliseconds after which a lookup is slow, and for which its name and its domain are remembered. */
const SLOW = 2_000;
const SLOW_MEMORY = 600_000;
/** Slow names, and names that resolved. */
const MOST_NAMES = 1_000;

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
 *
 * Hostile servers answer c-ares and not the lookup. So names that have resolved before go first, the last of several threads is kept for
 * them, and the other names of a domain with a slow name stay in the lane.
 */
export class HostLookups {
  private readonly clock: WebhookClock;
  private readonly getAddresses: HostLookup;
  private resolver: HostLookupsSetup['resolver'];
  /** All that wait or run, so that callers share them. */
  private readonly lookups = new Map<string, Lookup>();
  /** Those that wait, in order: for the lane, for most threads, or for any thread. */
  private readonly doubtful = new Set<Lookup>();
  private readonly answered = new Set<Lookup>();
  private readonly trusted = new Set<Lookup>();
  private isLaneBusy = false;
  /** Others that may begin now. With three threads or more, they all run at once, so that the time one takes is its own. */
  private free: number;
  /** How many of those threads only trusted lookups get. */
  private readonly kept: number;
  /** Until when a name, or a domain, is slow. */
  private readonly slow = new Map<string, number>();
  /** Names that resolved quickly, and when they last did. */
  private readonly known = new Map<string, number>();

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
    this.kept = this.free > 1 ? 1 : 0;
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
    if (LOCAL.test(hostname)) this.admit(lookup);
    else this.doubtful.add(lookup);
    this.begin();
    if (this.doubtful.has(lookup) && !this.isInDoubt(hostname)) void this.probe(lookup);
  };

  /** Begins all lookups that have a thread. */
  private begin(): void {
    const { trusted, answered, doubtful } = this;
    const forFree = (): Lookup | undefined =>
      this.free > this.kept ? this.take(trusted, answered) : this.take(trusted);
    let next: Lookup | undefined;
    while (this.free > 0 && (next = forFree()) !== undefined) {
      this.free--;
      this.run(next, () => this.free++);
    }
    while (!this.isLaneBusy && (next = this.take(trusted, answered, doubtful)) !== undefined) {
      this.isLaneBusy = true;
      this.run(next, () => (this.isLaneBusy = false));
    }
  }

  private take(...queues: readonly Set<Lookup>[]): Lookup | undefined {
    for (const waiting of queues) {
      for (const lookup of waiting) {
        waiting.delete(lookup);
        this.dropUnwanted(lookup);
        if (lookup.waiters.length > 0) return lookup;
        this.lookups.delete(lookup.key);
      }
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
      else if (error === null && addresses.length > 0) remember(this.known, hostname, start);
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
    this.admit(lookup);
    this.begin();
  }

  /** Lets a lookup whose servers answer wait for a thread. */
  private admit(lookup: Lookup): void {
    const { hostname } = lookup;
    const isTrusted = this.known.has(hostname) && !this.isSlow(domainOf(hostname));
    const ready = isTrusted ? this.trusted : this.answered;
    (this.isInDoubt(hostname) ? this.doubtful : ready).add(lookup);
  }

  /** Whether it stays in the lane, whatever its servers answer c-ares. */
  private isInDoubt(hostname: string): boolean {
    return this.isSlow(hostname) || (!this.known.has(hostname) && this.isSlow(domainOf(hostname)));
  }

  private isSlow(name: string): boolean {
    return (this.slow.get(name) ?? 0) > this.clock.now();
  }

  private rememberSlow(hostname: string): void {
    this.known.delete(hostname);
    const until = this.clock.now() + SLOW_MEMORY;
    for (const name of [hostname, domainOf(hostname)]) remember(this.slow, name, until);
    const waiting = [...this.trusted, ...this.answered];
    this.trusted.clear();
    this.answered.clear();
    for (const lookup of waiting) this.admit(lookup);
  }
}

/** Adds a name; the one that was added first is dropped. */
function remember(names: Map<string, number>, name: string, time: number): void {
  names.delete(name);
  names.set(name, time);
  if (names.size <= MOST_NAMES) return;
  const [oldest] = names.keys();
  names.delete(oldest!);
}

/** The domain that its owner has registered, in a form that no hostname has: two labels, or three below a suffix such as `co.uk`. */
function domainOf(hostname: string): string {
  const labels = hostname.split('.').filter((label) => label !== '');
  const isSuffix = (labels.at(-2)?.length ?? 0) <= 3;
  return `*.${labels.slice(isSuffix ? -3 : -2).join('.')}`;
}

/** Resolves names for all parts of the process: they share its threads. */
export const lookupHost: HostLookup = new HostLookups().lookup;

function tooLate(hostname: string): NodeJS.ErrnoException {
  return Object.assign(new Error(`getaddrinfo EAI_AGAIN ${hostname}`), {
    code: 'EAI_AGAIN',
    syscall: 'getaddrinfo',
  });
}
