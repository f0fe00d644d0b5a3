import { isIP } from 'node:net';

/** `::ffff:0:0/96`, where IPv6 writes an IPv4 address down. */
const IPV4_MAPPED = 0xffffn << 32n;

/**
 * An address as 128 bits. IPv4 lies in the IPv4-mapped range, so that `10.0.0.1`, `::ffff:10.0.0.1` and
 * `::ffff:a00:1` are one address: the one the packet goes to.
 */
export type IpAddress = bigint;

/** Reads an address in the strict notation of `node:net`; a zone (`%eth0`) is set aside. */
export function parseIpAddress(text: string): IpAddress | undefined {
  const [address = ''] = text.split('%', 1);
  switch (isIP(text)) {
    case 4:
      return IPV4_MAPPED | bitsOfIpv4(address);
    case 6:
      return bitsOfIpv6(address);
    default:
      return undefined;
  }
}

/** Tells whether packets to the address travel over IPv4. */
export function isIpv4(address: IpAddress): boolean {
  return address >> 32n === IPV4_MAPPED >> 32n;
}

function bitsOfIpv4(address: string): bigint {
  return address.split('.').reduce((bits, octet) => (bits << 8n) | BigInt(octet), 0n);
}

function bitsOfIpv6(address: string): bigint {
  const [head = '', tail] = address.split('::', 2);
  const before = groupsOf(head);
  const after = groupsOf(tail ?? '');
  const zeros = new Array<bigint>(8 - before.length - after.length).fill(0n);
  return [...before, ...zeros, ...after].reduce((bits, group) => (bits << 16n) | group, 0n);
}

function groupsOf(part: string): bigint[] {
  if (part === '') return [];
  return part.split(':').flatMap((group) => {
    if (!group.includes('.')) return BigInt(`0x${group}`);
    const bits = bitsOfIpv4(group);
    return [bits >> 16n, bits & 0xffffn];
  });
}
