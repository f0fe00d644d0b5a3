import { describe, expect, it } from '@jest/globals';
import * as fc from 'fast-check';
import { parseIpAddress, IpNetwork } from '../../lib/egress/ip-network.js';

describe('parseIpAddress', () => {
  it.each([
    ['10.0.0.1', '::ffff:10.0.0.1'],
    ['10.0.0.1', '::ffff:a00:1'],
    ['10.0.0.1', '0:0:0:0:0:FFFF:0A00:0001'],
    ['::1', '0:0:0:0:0:0:0:1'],
    ['::', '0::0'],
    ['fe80::1', 'fe80::1%eth0'],
    ['1::8', '1:0:0:0:0:0:0:8'],
    ['1:2:3:4:5:6:7::', '1:2:3:4:5:6:7:0'],
  ])('parses %s and %s to the same address', (one, other) => {
    expect(parseIpAddress(one)).toBeDefined();
    expect(parseIpAddress(one)).toBe(parseIpAddress(other));
  });

  it.each([
    '',
    '127.1',
    '0x7f.0.0.1',
    '010.0.0.1',
    '1.2.3.4.5',
    '[::1]',
    '::g',
    'localhost',
    '1::2::3',
  ])('does not parse %p', (text) => {
    expect(parseIpAddress(text)).toBeUndefined();
  });

  it('parses every IPv6 address to its eight groups', () => {
    const groups = fc.array(fc.integer({ min: 0, max: 0xffff }), { minLength: 8, maxLength: 8 });
    fc.assert(
      fc.property(groups, (parts) => {
        const text = parts.map((part) => part.toString(16)).join(':');
        const bits = parts.reduce((sum, part) => sum * 65_536n + BigInt(part), 0n);
        // The URL parser is an independent implementation of the shortest form.
        const short = new URL(`http://[${text}]/`).hostname.slice(1, -1);

        expect([parseIpAddress(text), parseIpAddress(short)]).toEqual([bits, bits]);
      }),
    );
  });
});

describe('IpNetwork', () => {
  it.each([
    [
      '10.0.0.0/8',
      ['10.0.0.0', '10.255.255.255', '::ffff:10.1.2.3'],
      ['9.255.255.255', '11.0.0.0'],
    ],
    ['10.1.2.3', ['10.1.2.3', '::ffff:a01:203'], ['10.1.2.2', '10.1.2.4']],
    ['192.168.4.0/22', ['192.168.4.0', '192.168.7.255'], ['192.168.3.255', '192.168.8.0']],
    ['0.0.0.0/0', ['0.0.0.0', '255.255.255.255'], ['::1', '2606:4700::1']],
    ['::/0', ['::1', 'ffff::'], ['10.0.0.1', '::ffff:10.0.0.1']],
    ['fd12::/48', ['fd12::', 'fd12:0:0:ffff::'], ['fd12:0:1::', 'fd11::']],
    ['::ffff:10.0.0.0/104', ['10.0.0.1', '::ffff:10.9.9.9'], ['11.0.0.1', '::10.0.0.1']],
    ['2001:db8::7', ['2001:db8:0::7'], ['2001:db8::8']],
  ])('%s contains exactly the addresses that it names', (network, inside, outside) => {
    const range = IpNetwork.of(network);

    expect(inside.filter((address) => !range.contains(parseIpAddress(address)!))).toEqual([]);
    expect(outside.filter((address) => range.contains(parseIpAddress(address)!))).toEqual([]);
  });

  it.each([
    ['a name', 'example.com', /neither an IP address nor a network/],
    ['a short address', '10.1/16', /neither an IP address nor a network/],
    ['a leading zero', '010.0.0.0/8', /neither an IP address nor a network/],
    ['a zone', 'fe80::1%eth0', /neither an IP address nor a network/],
    ['nothing', '', /neither an IP address nor a network/],
    ['no prefix after the slash', '10.0.0.0/', /from 0 to 32/],
    ['a prefix that is too long', '10.0.0.0/33', /from 0 to 32/],
    ['an IPv6 prefix that is too long', 'fd00::/129', /from 0 to 128/],
    ['a padded prefix', '10.0.0.0/08', /from 0 to 32/],
    ['a mask instead of a prefix', '10.0.0.0/255.0.0.0', /from 0 to 32/],
    ['bits after the prefix', '10.0.0.1/8', /bits set after its prefix/],
    ['IPv6 bits after the prefix', 'fd00::1/64', /bits set after its prefix/],
    ['another type', 10, /must be a string/],
  ])('explains why it refuses %s', (_, text, problem) => {
    expect(IpNetwork.problemOf(text)).toMatch(problem);
  });
});
