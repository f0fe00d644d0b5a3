import { isIP, isIPv4 } from 'node:net';

/** `::ffff:0:0/96`: IPv4 addresses in IPv6 notation. */
const IPV4_MAPPED = 0xffffn << 32n;

/**
 * An address as 128 bits. IPv4 is in the IPv4-mapped range, so that `10.0.0.1`, `::ffff:10.0.0.1` and
 * `::ffff:a00:1` are one address: the one the packet goes to.
 */
export type IpAddress = bigint;

/** Reads an address in the strict notation of `node:net`; a zone (`%eth0`) is ignored. */
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

/** Whether packets to the address travel over IPv4. */
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

/** A range of addresses: `10.0.0.0/8`, `fc00::/7`, or one address by itself. */
export class IpNetwork {
  private constructor(
    private readonly base: IpAddress,
    private readonly hostBits: bigint,
    private readonly ipv4: boolean,
  ) {}

  /** @returns the problem and its remedy; `undefined` if {@link IpNetwork.of} can read it */
  static problemOf(text: unknown): string | undefined {
    if (typeof text !== 'string')
      return 'an address or a network must be a string, such as "10.1.0.0/16"';
    const { address, prefix, longest } = partsOf(text);
    const bits = text.includes('%') ? undefined : parseIpAddress(address);
    if (bits === undefined) {
      return 'this is neither an IP address nor a network: write "10.1.2.3", "10.1.0.0/16" or "fd12::/48", and no host name';
    }
    if (Number.isNaN(prefix) || prefix > longest) {
      return `the number after "/" counts the fixed leading bits: write one from 0 to ${longest}`;
    }
    if (bits & ((1n << BigInt(longest - prefix)) - 1n)) {
      return 'the address has bits set after its prefix, so its meaning is unclear: write the first address of the network, or leave out "/" to name one address';
    }
    return undefined;
  }

  /** @param text - a network without a problem */
  static of(text: string): IpNetwork {
    const { address, prefix, longest } = partsOf(text);
    const base = parseIpAddress(address);
    if (base === undefined) throw new TypeError(IpNetwork.problemOf(text));
    const hostBits = BigInt(longest - prefix);
    // `::/0` is every IPv6 address and no IPv4 one, although the mapped range lies within it.
    return new IpNetwork(base, hostBits, isIpv4(base) && hostBits <= 32n);
  }

  contains(address: IpAddress): boolean {
    return isIpv4(address) === this.ipv4 && address >> this.hostBits === this.base >> this.hostBits;
  }
}

/** `prefix` is NaN if the text after the slash is not a plain number. */
function partsOf(text: string): { address: string; prefix: number; longest: number } {
  const slash = text.indexOf('/');
  const address = slash < 0 ? text : text.slice(0, slash);
  const longest = isIPv4(address) ? 32 : 128;
  if (slash < 0) return { address, prefix: longest, longest };
  const digits = text.slice(slash + 1);
  return { address, prefix: /^(?:0|[1-9]\d{0,2})$/.test(digits) ? Number(digits) : NaN, longest };
}
