import { AsyncLocalStorage } from 'node:async_hooks';
import { createSocket } from 'node:dgram';
import dns, { type LookupAddress } from 'node:dns';
import { once } from 'node:events';
import http from 'node:http';
import { describe, expect, it } from '@jest/globals';
import { EgressPolicy } from '../../lib/egress/egress-policy.js';
import { EgressProxy } from '../../lib/egress/egress-proxy.js';
import { createGuardedAgents } from '../../lib/egress/guarded-agent.js';
import { type HostLookup, HostLookups } from '../../lib/egress/host-lookup.js';
import { TestClock } from '../../lib/testing/index.js';
import { startTarget } from './target-server.js';

const ADDRESSES = [{ address: '127.0.0.1', family: 4 }];
const TEN_MINUTES = 600_000;

/** A machine whose lookups end when a test says so, and whose name servers answer for some names. */
class Machine {
  readonly clock = new TestClock();
  /** The names that getaddrinfo and c-ares were asked for. */
  readonly asked: string[] = [];
  readonly probed: string[] = [];
  /** The names that were looked up, each with the number of its addresses or the code of its error. */
  readonly outcomes: (readonly [name: string, outcome: number | string | undefined])[] = [];
  /** Codes of failed probes, by a part of the name. */
  readonly failures: Record<string, string> = { silent: dns.TIMEOUT };
  readonly lookup: HostLookup;
  private readonly running = new Map<string, Parameters<HostLookup>[2]>();

  constructor(threads = 4) {
    const probe = async (name: string): Promise<string[]> => {
      this.probed.push(name);
      const failure = Object.entries(this.failures).find(([part]) => name.includes(part));
      if (failure === undefined) return ['192.0.2.66'];
      throw Object.assign(new Error(failure[1]), { code: failure[1] });
    };
    const lookups = new HostLookups({
      clock: this.clock,
      threads,
      resolver: { resolve4: probe, resolve6: probe } as unknown as dns.promises.Resolver,
      lookup: (name, _options, callback) => {
        this.asked.push(name);
        this.running.set(name, callback);
      },
    });
    this.lookup = lookups.lookup;
  }

  get busy(): string[] {
    return [...this.running.keys()];
  }

  /** Starts lookups one after the other, and lets their probes end. */
  async start(names: readonly string[], isWanted = (): boolean => true): Promise<void> {
    for (const name of names) {
      this.lookup(name, { all: true, isWanted }, (error, addresses) => {
        this.outcomes.push([name, error?.code ?? addresses.length]);
      });
      await turn();
    }
  }

  async end(name: string, addresses: LookupAddress[] = ADDRESSES): Promise<void> {
    const callback = this.running.get(name)!;
    this.running.delete(name);
    callback(null, addresses);
    await turn();
  }
}

async function turn(): Promise<void> {
  await new Promise((resolve) => setImmediate(resolve));
}

const SILENT = Array.from({ length: 8 }, (_, index) => `silent${index}.example`);

describe('a name whose servers are silent', () => {
  it('does not keep a healthy one from its addresses', async () => {
    const machine = new Machine();
    await machine.start(SILENT);
    await machine.start(['healthy.example']);
    await machine.end('healthy.example');

    expect(machine.outcomes).toEqual([['healthy.example', 1]]);
  });

  it('is looked up when no other one is', async () => {
    const machine = new Machine(64);
    await machine.start(SILENT);
    for (const name of SILENT) {
      expect(machine.busy).toEqual([name]);
      await machine.end(name);
    }

    expect(machine.outcomes).toEqual(SILENT.map((name) => [name, 1]));
  });

  it.each(['resolve4', 'resolve6'])('is one for which %s alone times out', async (method) => {
    const never = Object.assign(new Error(), { code: dns.TIMEOUT });
    const resolver = { resolve4: async () => [], resolve6: async () => [] };
    Object.assign(resolver, { [method]: async () => Promise.reject(never) });
    const asked: string[] = [];
    const { lookup } = new HostLookups({
      resolver,
      lookup: (name) => void asked.push(name),
    });
    for (const name of ['one.example', 'two.example']) lookup(name, { all: true }, () => {});
    await turn();

    expect(asked).toEqual(['one.example']);
  });

  it('is recognised by c-ares', async () => {
    const server = createSocket('udp4').bind(0, '127.0.0.1');
    await once(server, 'listening');
    const resolver = new dns.promises.Resolver({ timeout: 50, tries: 1 });
    resolver.setServers([`127.0.0.1:${server.address().port}`]);
    const probes: Promise<unknown>[] = [];
    const watched = (method: 'resolve4' | 'resolve6') => async (name: string) => {
      const probe = resolver[method](name);
      probes.push(probe);
      return probe;
    };
    const asked: string[] = [];
    const { lookup } = new HostLookups({
      resolver: { resolve4: watched('resolve4'), resolve6: watched('resolve6') } as never,
      lookup: (name) => void asked.push(name),
    });
    for (const name of ['one.example', 'two.example']) lookup(name, { all: true }, () => {});
    await Promise.allSettled(probes);
    await turn();
    server.close();

    expect(probes).toHaveLength(2);
    expect(asked).toEqual(['one.example']);
  });

  it.each([dns.NOTFOUND, dns.NODATA, dns.SERVFAIL, dns.CONNREFUSED, 'ENOSERVER', 'EBADNAME'])(
    'is none if c-ares answers %s',
    async (code) => {
      const machine = new Machine();
      machine.failures['healthy'] = code;
      await machine.start(['silent.example', 'healthy.example']);

      expect(machine.busy).toEqual(['silent.example', 'healthy.example']);
    },
  );

  it('has the addresses that getaddrinfo alone knows, and never those of c-ares', async () => {
    const machine = new Machine();
    machine.failures['hosts-file'] = dns.TIMEOUT;
    await machine.start(['silent.example', 'hosts-file.example']);
    await machine.end('silent.example', []);
    let found: LookupAddress[] = [];
    machine.lookup('hosts-file.example', { all: true }, (_error, addresses) => (found = addresses));
    await machine.end('hosts-file.example');

    expect(found).toEqual(ADDRESSES);
    expect(machine.outcomes.at(-1)).toEqual(['hosts-file.example', 1]);
  });

  it('leaves the lane when its servers answer after all', async () => {
    const answers: (() => void)[] = [];
    const late = async (): Promise<string[]> =>
      new Promise((resolve) => answers.push(() => resolve([])));
    const asked: string[] = [];
    const { lookup } = new HostLookups({
      resolver: { resolve4: late, resolve6: late } as never,
      lookup: (name) => void asked.push(name),
    });
    for (const name of ['one.example', 'two.example']) lookup(name, { all: true }, () => {});
    await turn();
    expect(asked).toEqual(['one.example']);
    for (const answer of answers) answer();
    await turn();

    expect(asked).toEqual(['one.example', 'two.example']);
  });
});

describe('a lookup', () => {
  it('asks no name server by itself, unless it would have to wait', async () => {
    const machine = new Machine();
    for (const name of ['one.example', 'two.example']) {
      await machine.start([name]);
      await machine.end(name);
    }

    expect(machine.outcomes).toHaveLength(2);
    expect(machine.probed).toEqual([]);
  });

  it('of a local name asks none at all', async () => {
    const names = ['database', 'localhost', 'localhost.', 'app.localhost', 'app.localhost.'];
    const machine = new Machine(64);
    await machine.start(['silent.example', ...names]);

    expect(machine.busy).toEqual(['silent.example', ...names]);
    expect(machine.probed).toEqual([]);
  });

  it.each([
    [1, 2],
    [2, 2],
    [4, 2],
    [5, 2],
    [8, 3],
    [NaN, 2],
  ])('with %d threads, is one of at most %d', async (threads, most) => {
    const machine = new Machine(threads);
    const names = Array.from({ length: 12 }, (_, index) => `healthy${index}.example`);
    await machine.start(names);
    expect(machine.busy).toHaveLength(most);
    for (const name of names) await machine.end(name);

    expect(machine.outcomes).toEqual(names.map((name) => [name, 1]));
  });

  it('shares that of the same name and options', async () => {
    const machine = new Machine();
    await machine.start(['silent0.example', 'silent1.example', 'silent1.example']);
    machine.lookup('silent1.example', { all: true, family: 4 }, () => {});
    await machine.end('silent0.example');
    await machine.start(['silent1.example']);
    await machine.end('silent1.example');

    expect(machine.asked).toEqual(['silent0.example', 'silent1.example', 'silent1.example']);
    expect(machine.outcomes.slice(1)).toEqual(
      Array.from({ length: 3 }, () => ['silent1.example', 1]),
    );
  });

  it('is dropped when it has not begun and nobody waits for it', async () => {
    const machine = new Machine();
    let isWanted = true;
    await machine.start(['silent0.example']);
    await machine.start(['silent1.example', 'silent2.example'], () => isWanted);
    await machine.start(['silent2.example', 'silent3.example']);
    isWanted = false;
    for (const number of [0, 2, 3]) await machine.end(`silent${number}.example`);

    expect(machine.asked).toEqual(['silent0.example', 'silent2.example', 'silent3.example']);
    expect(machine.outcomes).toEqual([
      ['silent1.example', 'EAI_AGAIN'],
      ['silent2.example', 'EAI_AGAIN'],
      ['silent0.example', 1],
      ['silent2.example', 1],
      ['silent3.example', 1],
    ]);
  });

  it('that cannot begin fails, and leaves its thread to the next', async () => {
    const asked: string[] = [];
    const { lookup } = new HostLookups({
      lookup: (name) => {
        asked.push(name);
        throw Object.assign(new Error(), { code: 'ERR_INVALID_ARG_VALUE' });
      },
    });
    const codes: (string | undefined)[] = [];
    for (const name of ['one.example', 'two.example']) {
      lookup(name, { all: true }, (error) => codes.push(error?.code));
    }
    await turn();

    expect(asked).toEqual(['one.example', 'two.example']);
    expect(codes).toEqual(['ERR_INVALID_ARG_VALUE', 'ERR_INVALID_ARG_VALUE']);
  });

  it('ends in the context of its caller', async () => {
    const machine = new Machine();
    const context = new AsyncLocalStorage<string>();
    const contexts: (string | undefined)[] = [];
    for (const name of ['silent0.example', 'silent1.example']) {
      context.run(name, () =>
        machine.lookup(name, { all: true }, () => contexts.push(context.getStore())),
      );
    }
    await machine.end('silent0.example');
    await machine.end('silent1.example');

    expect(contexts).toEqual(['silent0.example', 'silent1.example']);
  });
});

describe('a name whose lookup took more than 2 s', () => {
  it('is in doubt for ten minutes, although its servers answer c-ares', async () => {
    const machine = new Machine();
    const name = 'tricky.example';
    const isAtOnce = async (): Promise<boolean> => {
      await machine.start(['silent.example', name]);
      const busy = machine.busy;
      await machine.end('silent.example');
      await machine.end(name);
      return busy.includes(name);
    };
    await machine.start([name]);
    await machine.clock.advance(2_001);
    await machine.end(name);
    const outcomes = [await isAtOnce()];
    expect(machine.probed).toEqual([]);
    await machine.clock.advance(TEN_MINUTES - 1);
    outcomes.push(await isAtOnce());
    await machine.clock.advance(1);
    outcomes.push(await isAtOnce());

    expect(outcomes).toEqual([false, false, true]);
  });

  it('is not one that had to wait for others', async () => {
    const machine = new Machine();
    await machine.start(['slow0.example', 'slow1.example', 'quick.example']);
    await machine.clock.advance(20_000);
    for (const name of ['slow0.example', 'slow1.example', 'quick.example']) await machine.end(name);
    await machine.start(['silent.example', 'slow0.example', 'slow1.example', 'quick.example']);

    expect(machine.busy).toEqual(['silent.example', 'quick.example']);
  });
});

describe('a name that resolved before', () => {
  /** Names whose servers answer c-ares, and whose lookups do not end. */
  const TRICKY = Array.from({ length: 8 }, (_, index) => `tricky${index}.example`);

  async function resolve(machine: Machine, name: string): Promise<void> {
    await machine.start([name]);
    await machine.end(name);
  }

  it.each([5, 16, 64])('finds one of %d threads free', async (threads) => {
    const machine = new Machine(threads);
    await resolve(machine, 'known.example');
    const names = Array.from({ length: 40 }, (_, index) => `tricky${index}.example`);
    await machine.start(names);
    expect(machine.busy).toHaveLength(Math.floor((threads + 1) / 2) - 1);
    await machine.start(['new.example', 'known.example']);

    expect(machine.busy).not.toContain('new.example');
    expect(machine.busy).toContain('known.example');
  });

  it('goes first if there are too few threads to keep one', async () => {
    const machine = new Machine(4);
    await resolve(machine, 'known.example');
    await machine.start([...TRICKY, 'known.example']);
    await machine.end('tricky0.example');

    expect(machine.busy).toEqual(['tricky1.example', 'known.example']);
  });

  it.each([
    ['has no address', []],
    ['took more than 2 s', ADDRESSES],
  ])('is none if it %s', async (_, addresses) => {
    const machine = new Machine(16);
    await machine.start(['other.example']);
    await machine.clock.advance(addresses.length === 0 ? 0 : 2_001);
    await machine.end('other.example', addresses);
    await machine.start([...TRICKY, 'other.example']);

    expect(machine.busy).not.toContain('other.example');
  });

  it('is one of the 1,000 that were used last', async () => {
    const machine = new Machine(16);
    await resolve(machine, 'old.example');
    await resolve(machine, 'used.example');
    for (let count = 0; count < 998; count++) await resolve(machine, `host${count}.example`);
    await resolve(machine, 'used.example');
    await resolve(machine, 'new.example');
    await machine.start([...TRICKY, 'old.example', 'used.example']);

    expect(machine.busy).not.toContain('old.example');
    expect(machine.busy).toContain('used.example');
  });
});

describe('a domain with a slow name', () => {
  async function withSlow(name: string): Promise<Machine> {
    const machine = new Machine();
    await machine.start(['known.evil.example']);
    await machine.end('known.evil.example');
    await machine.start([name]);
    await machine.clock.advance(2_001);
    await machine.end(name);
    return machine;
  }

  it.each([
    ['tricky.evil.example', 'other.evil.example', false],
    ['tricky.evil.example', 'other.evil.example.', false],
    ['a.tricky.evil.example', 'evil.example', false],
    ['tricky.evil.example', 'good.example', true],
    ['tricky.evil.example', 'known.evil.example', true],
    ['tricky.evil.co.uk', 'other.evil.co.uk', false],
    ['tricky.evil.co.uk', 'good.co.uk', true],
  ])('after %s, lets %s run beside another doubtful one: %p', async (slow, name, isFree) => {
    const machine = await withSlow(slow);
    await machine.start(['silent.test', name]);
    expect(machine.busy).toEqual(isFree ? ['silent.test', name] : ['silent.test']);
    expect(machine.probed.includes(name)).toBe(isFree);
    for (const one of ['silent.test', name]) await machine.end(one);
    await machine.clock.advance(TEN_MINUTES);
    await machine.start(['silent.test', `new.${name}`]);

    expect(machine.busy).toEqual(['silent.test', `new.${name}`]);
  });

  it('puts its names that already wait into the lane', async () => {
    const machine = new Machine();
    const names = Array.from({ length: 4 }, (_, index) => `tricky${index}.evil.example`);
    await machine.start([...names, 'healthy.example', 'quick.example']);
    expect(machine.busy).toEqual(names.slice(0, 2));
    await machine.clock.advance(10_000);
    await machine.end(names[0]!);
    await machine.end(names[1]!);

    expect(machine.busy).toEqual(['healthy.example', 'quick.example']);
  });

  it('has no name that goes first', async () => {
    const machine = await withSlow('tricky.evil.example');
    await machine.start(['silent.test', 'a.example', 'b.example', 'known.evil.example']);
    await machine.end('a.example');

    expect(machine.busy).toEqual(['silent.test', 'b.example']);
  });
});

describe('the parts of the process', () => {
  it('share the lane: the check of a URL waits for that of a connection', async () => {
    const machine = new Machine();
    await machine.start(['silent0.example']);
    const policy = new EgressPolicy({});
    const url = 'https://silent1.example/';
    const isChecked = policy.checkResolvedUrl(url, machine.lookup).catch(() => 'refused');
    await turn();
    expect(machine.busy).toEqual(['silent0.example']);
    await machine.end('silent0.example');
    await machine.end('silent1.example');

    // By its address, which is loopback.
    expect(await isChecked).toBe('refused');
  });

  it('drop the lookup of a connection whose request has ended', async () => {
    const machine = new Machine();
    await machine.start(['silent0.example']);
    const agents = createGuardedAgents(new EgressPolicy({}), { lookup: machine.lookup });
    const request = http.get('http://silent1.example/', { agent: agents.httpAgent });
    await turn();
    request.destroy(new Error('over'));
    await once(request, 'error');
    await machine.end('silent0.example');
    agents.destroy();

    expect(machine.asked).toEqual(['silent0.example']);
  });

  it('drop the lookup of a tunnel once its agents are closed', async () => {
    const machine = new Machine();
    await machine.start(['silent0.example']);
    const proxy = new EgressProxy('http://127.0.0.1:9');
    const { lookup } = machine;
    const agents = createGuardedAgents(new EgressPolicy({}), { lookup, proxy });
    const request = http.get('http://silent1.example/', { agent: agents.httpAgent });
    await turn();
    agents.destroy();
    const failed = once(request, 'error');
    await machine.end('silent0.example');

    expect(await failed).toMatchObject([{ code: 'EAI_AGAIN' }]);
    expect(machine.asked).toEqual(['silent0.example']);
  });

  it('check the addresses of a shared lookup, each by its own policy', async () => {
    const target = await startTarget();
    const machine = new Machine();
    const url = `http://hooks.example:${target.port}/`;
    const outcomes = [{ allowedAddresses: ['127.0.0.1'] }, {}].map(async (options) => {
      const agents = createGuardedAgents(new EgressPolicy(options), { lookup: machine.lookup });
      const request = http.get(url, { agent: agents.httpAgent });
      try {
        const [response] = (await once(request, 'response')) as [http.IncomingMessage];
        response.resume();
        return response.statusCode;
      } catch (error) {
        return (error as NodeJS.ErrnoException).code;
      } finally {
        agents.destroy();
      }
    });
    await turn();
    await machine.end('hooks.example');

    expect(await Promise.all(outcomes)).toEqual([204, 'destination_blocked']);
    expect(machine.asked).toEqual(['hooks.example']);
    await target.close();
  });
});
