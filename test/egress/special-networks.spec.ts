import { isIPv4 } from 'node:net';
import { describe, expect, it } from '@jest/globals';
import { EgressPolicy } from '../../lib/egress/egress-policy.js';
import { NETWORK_EDGES } from './network-edges.js';

const policy = new EgressPolicy({ allowHttp: true });

/** One address in every notation that a URL or a resolver can contain. */
function notationsOf(address: string): string[] {
  return isIPv4(address) ? [address, `::ffff:${address}`] : [address];
}

function passes(address: string): boolean {
  const host = isIPv4(address) ? address : `[${address}]`;
  const verdicts = [
    () => policy.checkAddress(address),
    () => policy.checkUrl(`http://${host}/`),
    () => policy.checkUrl(`https://${host}:8443/hooks`),
    () => policy.checkResolved('hooks.test', [{ address, family: isIPv4(address) ? 4 : 6 }]),
  ].map((check) => {
    try {
      check();
      return true;
    } catch (error) {
      expect(error).toMatchObject({ code: 'destination_blocked' });
      return false;
    }
  });
  // All checks agree.
  expect(new Set(verdicts).size).toBe(1);
  return verdicts[0]!;
}

const INSIDE = NETWORK_EDGES.flatMap(([name, first, last]) =>
  [first, last].flatMap(notationsOf).map((address) => [address, name] as const),
);
const BESIDE = NETWORK_EDGES.flatMap(([name, , , before, after]) =>
  [before, after]
    .filter((address) => address !== undefined)
    .flatMap(notationsOf)
    .map((address) => [address, name] as const),
);

describe('special ranges', () => {
  it.each(INSIDE)('contain %s: %s', (address) => {
    expect(passes(address)).toBe(false);
  });

  it.each(BESIDE)('end before %s: %s', (address) => {
    expect(passes(address)).toBe(true);
  });
});

describe('a range inside another', () => {
  it.each([
    ['cloud metadata', '169.254.169.254'],
    ['cloud metadata, Azure', '168.63.129.16'],
    ['cloud metadata, Alibaba', '100.100.100.200'],
    ['cloud metadata, AWS', 'fd00:ec2::254'],
    ['cloud metadata, AWS', 'fd00:ec2::23'],
    ['cloud metadata, Google', 'fd20:ce::254'],
    ['cloud metadata, Oracle', 'fd00:c1::a9fe:a9fe'],
    ['cloud metadata, Scaleway', 'fd00:42::42'],
    ['cloud metadata, Akamai', 'fd00:a9fe:a9fe::1'],
    ['cloud metadata, Alibaba', 'fd00:100::100:200'],
  ])('stays blocked if private networks are allowed: %s at %s', (rule, address) => {
    const open = new EgressPolicy({ allowPrivateNetworks: true });

    expect(() => open.checkAddress(address)).toThrow(rule);
  });

  it.each(['fe80::5efe:7f00:1', '2606:4700::200:5efe:a00:1', 'fd00::5efe:a9fe:a9fe'])(
    'stays blocked if its last bits contain an IPv4 address: %s',
    (address) => {
      const open = new EgressPolicy({ allowPrivateNetworks: true });

      expect(() => open.checkAddress(address)).toThrow(/ISATAP/);
    },
  );
});
