import type dns from 'node:dns';
import { describe, expect, it, jest } from '@jest/globals';
import { type EgressOptions, EgressPolicy, isLoopback } from '../../lib/egress/egress-policy.js';
import { HostLookups } from '../../lib/egress/host-lookup.js';
import { configurationProblems } from '../fixtures/configuration-problems.js';
import { GOOD_URLS, HOSTILE_URLS } from './hostile-urls.js';
import { lookupOf } from './scripted-lookup.js';

const BLOCKED = { name: 'WebhookDestinationBlockedError', code: 'destination_blocked' };

function outcome(check: () => unknown): unknown {
  try {
    check();
    return 'passed';
  } catch (error) {
    return (error as { code?: unknown }).code;
  }
}

describe.each(Object.entries(HOSTILE_URLS))('EgressPolicy refuses %s', (_, urls) => {
  // Plain http: is allowed here, so that a URL is refused for its host and not for its scheme.
  const policy = new EgressPolicy({ allowHttp: true });

  it.each(urls)('%j', (url) => {
    expect(outcome(() => policy.checkUrl(url))).toBe('destination_blocked');
  });
});

describe('EgressPolicy.checkUrl', () => {
  it.each(GOOD_URLS)('accepts %s', (url) => {
    expect(new EgressPolicy({}).checkUrl(url).href).toBe(new URL(url).href);
  });

  it('refuses plain http: unless it is allowed', () => {
    const url = 'http://example.com/webhooks';

    expect(() => new EgressPolicy({}).checkUrl(url)).toThrow(/set allowHttp/);
    expect(new EgressPolicy({ allowHttp: true }).checkUrl(url).href).toBe(url);
  });

  it.each([22, 25, 465, 6000, 6667, 10080])('refuses port %i, unless it is allowed', (port) => {
    const url = `https://example.com:${port}/webhooks`;

    expect(() => new EgressPolicy({}).checkUrl(url)).toThrow(
      `port ${port} belongs to another protocol`,
    );
    expect(() => new EgressPolicy({ allowedPorts: [1] }).checkUrl(url)).toThrow('allowedPorts');
    expect(new EgressPolicy({ allowedPorts: [port] }).checkUrl(url).href).toBe(url);
  });

  it('checks a URL object as its string', () => {
    const policy = new EgressPolicy({});

    expect(policy.checkUrl(new URL('https://example.com/a')).href).toBe('https://example.com/a');
    expect(() => policy.checkUrl(new URL('https://0x7f.1/'))).toThrow(/127\.0\.0\.1.*loopback/);
  });

  it.each([
    ['https://hunter2:hunter3@example.com/?key=hunter4'],
    ['https://hunter2@127.0.0.1/hunter3?key=hunter4#hunter5'],
    ['https://127.0.0.1/hunter3?key=hunter4#hunter5'],
    ['hunter2:hunter3'],
    ['https://exa mple.com/?key=hunter4'],
    ['http://example.com/hunter3?key=hunter4'],
  ])('omits the secrets of %s from its message', (url) => {
    let message = '';
    try {
      new EgressPolicy({}).checkUrl(url);
    } catch (error) {
      message = String(error) + JSON.stringify(error) + String((error as Error).cause);
    }

    expect(message).toContain('refused');
    expect(message).not.toContain('hunter');
  });

  it.each([
    [
      'https://10.1.2.3/',
      '"10.1.2.3" was refused: it is in 10.0.0.0/8 (private use, RFC 1918)',
      true,
    ],
    ['https://169.254.169.254/', 'it is in 169.254.169.254/32 (cloud metadata)', false],
    ['https://[4000::1]/', 'it is no global unicast address (2000::/3, RFC 4291)', false],
    [
      'https://localhost/',
      '"localhost" was refused: it is in 127.0.0.0/8 (loopback, RFC 1122)',
      true,
    ],
  ])('names host, rule and remedy for %s', (url, rule, openedWithPrivate) => {
    const check = () => new EgressPolicy({}).checkUrl(url);

    expect(check).toThrow(rule);
    expect(check).toThrow(
      openedWithPrivate
        ? 'set allowPrivateNetworks or add it to allowedAddresses'
        : '; if this is intended, add it to allowedAddresses',
    );
  });
});

describe('EgressPolicy.checkAddress', () => {
  const PRIVATE = [
    '127.0.0.1',
    '10.0.0.1',
    '172.16.0.1',
    '192.168.0.1',
    '100.64.0.1',
    '::1',
    'fd00::1',
  ];
  const NEVER = [
    '0.0.0.0',
    '169.254.0.1',
    '169.254.169.254',
    '168.63.129.16',
    '100.100.100.200',
    'fd00:ec2::254',
    '192.0.2.1',
    '224.0.0.1',
    '255.255.255.255',
    '::',
    'fe80::1',
    'ff02::1',
    '2001:db8::1',
    '64:ff9b::a00:1',
    '2002:a00:1::',
  ];
  const PUBLIC = ['8.8.8.8', '2606:4700:4700::1111', '::ffff:8.8.8.8'];

  it.each<[string, EgressOptions, readonly string[]]>([
    ['no option', {}, PUBLIC],
    ['allowPrivateNetworks', { allowPrivateNetworks: true }, [...PUBLIC, ...PRIVATE]],
    ['one private address', { allowedAddresses: ['10.0.0.1'] }, [...PUBLIC, '10.0.0.1']],
    ['a private network', { allowedAddresses: ['192.168.0.0/16'] }, [...PUBLIC, '192.168.0.1']],
    [
      'a link-local address',
      { allowedAddresses: ['169.254.0.1', 'fe80::1'] },
      [...PUBLIC, '169.254.0.1', 'fe80::1'],
    ],
    [
      'the metadata address',
      { allowedAddresses: ['169.254.169.254/32'] },
      [...PUBLIC, '169.254.169.254'],
    ],
    [
      'a network in mapped notation',
      { allowedAddresses: ['::ffff:10.0.0.0/104'] },
      [...PUBLIC, '10.0.0.1'],
    ],
    [
      'private networks and one more address',
      { allowPrivateNetworks: true, allowedAddresses: ['192.0.2.0/24'] },
      [...PUBLIC, ...PRIVATE, '192.0.2.1'],
    ],
  ])('allows exactly what %s names', (_, options, expected) => {
    const policy = new EgressPolicy(options);
    const open = [...PUBLIC, ...PRIVATE, ...NEVER].filter(
      (address) => outcome(() => policy.checkAddress(address)) === 'passed',
    );

    expect(open.sort()).toEqual([...expected].sort());
  });

  it.each([
    ['no address', 'example.com'],
    ['nothing', ''],
    ['the short notation', '127.1'],
  ])('refuses %s', (_, address) => {
    expect(outcome(() => new EgressPolicy({}).checkAddress(address))).toBe('destination_blocked');
  });

  it('ignores the zone of an address', () => {
    expect(() => new EgressPolicy({}).checkAddress('fe80::1%eth0')).toThrow(/link-local/);
  });
});

describe('EgressPolicy.checkResolvedUrl', () => {
  const policy = new EgressPolicy({});
  const check = (lookup: typeof dns.lookup, url = 'https://hooks.example/in') =>
    policy.checkResolvedUrl(url, lookup);

  it('accepts a name whose addresses are all public', async () => {
    const url = await check(lookupOf(['8.8.8.8', '2606:4700:4700::1111']));

    expect(url.href).toBe('https://hooks.example/in');
  });

  it.each([
    ['one blocked address', ['10.0.0.1']],
    ['one blocked address among allowed ones', ['8.8.8.8', '2606:4700:4700::1111', '127.0.0.1']],
    ['a mapped address', ['::ffff:127.0.0.1']],
    ['an answer that is not an address', ['example.com']],
  ])('refuses a name with %s', async (_, addresses) => {
    await expect(check(lookupOf(addresses))).rejects.toMatchObject(BLOCKED);
  });

  it('does not disclose what the name resolves to', async () => {
    await expect(check(lookupOf(['10.20.30.40']))).rejects.toMatchObject({
      message: expect.stringMatching(
        /^(?!.*10\.20\.30\.40).*"hooks\.example".*10\.0\.0\.0\/8/,
      ) as unknown,
    });
  });

  it('accepts a name that does not resolve now, since every attempt checks again', async () => {
    await expect(check(lookupOf('ENOTFOUND'))).resolves.toBeInstanceOf(URL);
  });

  it('looks up one silent name at a time, and accepts what nobody answers for within 3 s', async () => {
    const timers: (() => void)[] = [];
    const { setTimeout: startTimer } = globalThis;
    jest.spyOn(globalThis, 'setTimeout').mockImplementation((end: () => void, ms?: number) => {
      if (ms! > 2_900) timers.push(end);
      return startTimer(end, ms);
    });
    const asked: string[] = [];
    const nobody = async (): Promise<never> => Promise.reject({ code: 'ETIMEOUT' });
    const { lookup: silent } = new HostLookups({
      lookup: (host) => void asked.push(host),
      resolver: { resolve4: nobody, resolve6: nobody },
    });
    const names = ['one', 'two', 'three'].map((name) => `https://${name}.example/`);
    const own = new EgressPolicy({});
    const checks = names.map(async (url) => own.checkResolvedUrl(url, silent));
    await new Promise((turn) => setImmediate(turn));
    const meanwhile = [...asked];
    for (const end of timers) end();

    expect(await Promise.all(checks)).toHaveLength(3);
    expect(meanwhile).toEqual(['one.example']);
    expect(asked).toEqual(meanwhile);
    jest.restoreAllMocks();
  });

  it('does not look up a literal address', async () => {
    const asked: string[] = [];
    await check(lookupOf(['10.0.0.1'], asked), 'https://8.8.8.8/');
    await expect(check(lookupOf(['8.8.8.8'], asked), 'https://0x7f.1/')).rejects.toMatchObject(
      BLOCKED,
    );

    expect(asked).toEqual([]);
  });

  it('checks what localhost resolves to if one loopback is allowed', async () => {
    const ipv4 = new EgressPolicy({ allowedAddresses: ['127.0.0.1'] });

    await expect(
      ipv4.checkResolvedUrl('https://localhost/', lookupOf(['127.0.0.1'])),
    ).resolves.toBeInstanceOf(URL);
    await expect(
      ipv4.checkResolvedUrl('https://localhost/', lookupOf(['127.0.0.1', '::1'])),
    ).rejects.toMatchObject(BLOCKED);
  });
});

describe('the options of the egress guard', () => {
  it('reports nothing for valid options', async () => {
    expect(await problemsOf({})).toEqual([]);
    expect(
      await problemsOf({
        allowHttp: true,
        allowPrivateNetworks: false,
        allowedAddresses: ['10.0.0.0/8', 'fd00::/8', '127.0.0.1'],
      }),
    ).toEqual([]);
  });

  it('lists every error with its path and a remedy', async () => {
    const options = {
      allowHttp: 'false',
      allowPrivateNetworks: 1,
      allowedAddresses: ['10.0.0.1', '10.0.0.1/8', 'intern.example'],
    };

    expect(await problemsOf(options)).toEqual([
      expect.stringMatching(/^publisher\.allowHttp: .*boolean/),
      expect.stringMatching(/^publisher\.allowPrivateNetworks: .*boolean/),
      expect.stringMatching(/^publisher\.allowedAddresses\[1\]: .*leave out "\/"/),
      expect.stringMatching(/^publisher\.allowedAddresses\[2\]: .*no host name/),
    ]);
  });

  it('requires a list of addresses', async () => {
    expect(await problemsOf({ allowedAddresses: '10.0.0.0/8' })).toEqual([
      expect.stringMatching(/^publisher\.allowedAddresses: .*must be a list/),
    ]);
  });
});

async function problemsOf(egress: object): Promise<string[]> {
  const secret = 'a-secret-of-at-least-32-bytes-for-tests';
  return configurationProblems({ publisher: { issuer: 'us', secret, ...egress } });
}

describe('isLoopback', () => {
  it.each([
    '127.0.0.1',
    '127.9.9.9',
    '::1',
    '[::1]',
    '0:0:0:0:0:0:0:1',
    '::ffff:127.0.0.1',
    '[::ffff:7f00:1]',
    'localhost',
    'LocalHost',
    'localhost.',
    'app.localhost',
    'a.b.localhost',
  ])('recognises %s', (host) => {
    expect(isLoopback(host)).toBe(true);
  });

  it.each([
    '',
    '0.0.0.0',
    '::',
    '127.0.0.256',
    '128.0.0.1',
    '::ffff:10.0.0.1',
    '127.0.0.1.example',
    'localhost.example',
    'notlocalhost',
    'user@localhost',
    'example.com/.localhost',
    'example.com:80.localhost',
  ])('does not recognise %j', (host) => {
    expect(isLoopback(host)).toBe(false);
  });
});
