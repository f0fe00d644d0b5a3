import { isIpv4, type IpAddress, IpNetwork } from './ip-network.js';

/** A range that is not the public internet. */
interface SpecialNetwork {
  readonly network: IpNetwork;
  /** For messages: the range, its purpose and its specification. */
  readonly rule: string;
  /** Whether `allowPrivateNetworks` opens it. */
  readonly private: boolean;
}

const PRIVATE = true;
const NEVER = false;

/**
 * Ranges that are refused by default: the IANA special-purpose registries (RFC 6890), and the addresses at which clouds
 * provide credentials. The first match counts, so narrow ranges come first.
 */
const SPECIAL_NETWORKS: readonly SpecialNetwork[] = [
  special('169.254.169.254/32', 'cloud metadata', NEVER),
  special('168.63.129.16/32', 'cloud metadata, Azure', NEVER),
  special('100.100.100.200/32', 'cloud metadata, Alibaba', NEVER),
  special('fd00:ec2::/32', 'cloud metadata, AWS', NEVER),
  special('fd20:ce::254/128', 'cloud metadata, Google', NEVER),
  special('fd00:c1::a9fe:a9fe/128', 'cloud metadata, Oracle', NEVER),
  special('fd00:42::42/128', 'cloud metadata, Scaleway', NEVER),
  special('fd00:a9fe:a9fe::1/128', 'cloud metadata, Akamai', NEVER),
  special('fd00:100::100:200/128', 'cloud metadata, Alibaba', NEVER),

  special('0.0.0.0/8', 'this host, RFC 1122', NEVER),
  special('10.0.0.0/8', 'private use, RFC 1918', PRIVATE),
  special('100.64.0.0/10', 'carrier-grade NAT, RFC 6598', PRIVATE),
  special('127.0.0.0/8', 'loopback, RFC 1122', PRIVATE),
  special('169.254.0.0/16', 'link-local, RFC 3927', NEVER),
  special('172.16.0.0/12', 'private use, RFC 1918', PRIVATE),
  special('192.0.0.0/24', 'protocol assignments, RFC 6890', NEVER),
  special('192.0.2.0/24', 'documentation, RFC 5737', NEVER),
  special('192.88.99.0/24', '6to4 relays, RFC 7526', NEVER),
  special('192.168.0.0/16', 'private use, RFC 1918', PRIVATE),
  special('198.18.0.0/15', 'benchmarking, RFC 2544', NEVER),
  special('198.51.100.0/24', 'documentation, RFC 5737', NEVER),
  special('203.0.113.0/24', 'documentation, RFC 5737', NEVER),
  special('224.0.0.0/4', 'multicast, RFC 5771', NEVER),
  special('240.0.0.0/4', 'reserved and broadcast, RFC 1112', NEVER),

  special('::1/128', 'loopback, RFC 4291', PRIVATE),
  special('fc00::/7', 'unique local, RFC 4193', PRIVATE),
  special('fe80::/10', 'link-local, RFC 4291', NEVER),
  special('ff00::/8', 'multicast, RFC 4291', NEVER),
  special('64:ff9b::/96', 'NAT64, RFC 6052', NEVER),
  special('64:ff9b:1::/48', 'local NAT64, RFC 8215', NEVER),
  special('2001::/32', 'Teredo, RFC 4380', NEVER),
  special('2001::/23', 'protocol assignments, RFC 2928', NEVER),
  special('2001:db8::/32', 'documentation, RFC 3849', NEVER),
  special('2002::/16', '6to4, RFC 3056', NEVER),
  special('3fff::/20', 'documentation, RFC 9637', NEVER),
];

const GLOBAL_UNICAST = IpNetwork.of('2000::/3');

const UNASSIGNED: SpecialNetwork = {
  network: IpNetwork.of('::/0'),
  rule: 'no global unicast address (2000::/3, RFC 4291)',
  private: false,
};

const ISATAP: SpecialNetwork = {
  network: IpNetwork.of('::/0'),
  rule: 'an IPv4 address in an IPv6 one (ISATAP, RFC 5214)',
  private: false,
};

/** The 32 bits before an embedded IPv4 address, with and without the bit for a unique address. */
const ISATAP_MARKS: ReadonlySet<bigint> = new Set([0x0000_5efen, 0x0200_5efen]);

/** Returns the range that an address belongs to; `undefined` for an ordinary public address. */
export function specialNetworkOf(address: IpAddress): SpecialNetwork | undefined {
  // Under any prefix: the machine, or a router of its network, unpacks the IPv4 packet and forwards it.
  if (ISATAP_MARKS.has((address >> 32n) & 0xffff_ffffn)) return ISATAP;
  const found = SPECIAL_NETWORKS.find(({ network }) => network.contains(address));
  if (found !== undefined) return found;
  return isIpv4(address) || GLOBAL_UNICAST.contains(address) ? undefined : UNASSIGNED;
}

function special(range: string, meaning: string, opensWithPrivate: boolean): SpecialNetwork {
  return {
    network: IpNetwork.of(range),
    rule: `in ${range} (${meaning})`,
    private: opensWithPrivate,
  };
}
