import { isIPv4 } from 'node:net';
import { isIpv4, parseIpAddress, type IpAddress } from './ip-address.js';

/** A range of addresses: `10.0.0.0/8`, `fc00::/7`, or one address by itself. */
export class IpNetwork {
  private constructor(
    private readonly base: IpAddress,
    private readonly hostBits: bigint,
    private readonly ipv4: boolean,
  ) {}

  /**
   * Says what is wrong with the text of a network.
   *
   * @returns the fault and its remedy, or `undefined` for a network {@link IpNetwork.of} can read
   */
  static faultOf(text: unknown): string | undefined {
    if (typeof text !== 'string') return 'an address or a network is a text, such as "10.1.0.0/16"';
    const { address, prefix, longest } = partsOf(text);
    const bits = text.includes('%') ? undefined : parseIpAddress(address);
    if (bits === undefined) {
      return 'this is neither an IP address nor a network: write "10.1.2.3", "10.1.0.0/16" or "fd12::/48", and no host name';
    }
    if (Number.isNaN(prefix) || prefix > longest) {
      return `the number behind "/" counts the leading bits that are fixed: write one from 0 to ${longest}`;
    }
    if (bits & ((1n << BigInt(longest - prefix)) - 1n)) {
      return 'the address has bits set behind its prefix, so it is unclear what is meant: write the first address of the network, or leave out "/" to name one address';
    }
    return undefined;
  }

  /** @param text - a network without a fault */
  static of(text: string): IpNetwork {
    const { address, prefix, longest } = partsOf(text);
    const base = parseIpAddress(address);
    if (base === undefined) throw new TypeError(IpNetwork.faultOf(text));
    const hostBits = BigInt(longest - prefix);
    // `::/0` is every IPv6 address and no IPv4 one, although the mapped range lies within it.
    return new IpNetwork(base, hostBits, isIpv4(base) && hostBits <= 32n);
  }

  contains(address: IpAddress): boolean {
    return isIpv4(address) === this.ipv4 && address >> this.hostBits === this.base >> this.hostBits;
  }
}

/** `prefix` is NaN when something else than a plain number stands behind the slash. */
function partsOf(text: string): { address: string; prefix: number; longest: number } {
  const slash = text.indexOf('/');
  const address = slash < 0 ? text : text.slice(0, slash);
  const longest = isIPv4(address) ? 32 : 128;
  if (slash < 0) return { address, prefix: longest, longest };
  const digits = text.slice(slash + 1);
  return { address, prefix: /^(?:0|[1-9]\d{0,2})$/.test(digits) ? Number(digits) : NaN, longest };
}
