import { flag, list, optional, unless, whole } from '../options/rules.js';
import { IpNetwork } from './ip-network.js';

/** Which addresses deliveries may go to. By default: public ones, over HTTPS. */
export interface EgressOptions {
  /** Also deliver over plain `http:`, where anyone on the network path can read the token. Default: `false`. */
  readonly allowHttp?: boolean | undefined;
  /**
   * Also deliver to loopback, RFC 1918, 100.64.0.0/10 and fc00::/7. Link-local, cloud metadata, multicast
   * and documentation addresses stay refused. Default: `false`.
   */
  readonly allowPrivateNetworks?: boolean | undefined;
  /**
   * Addresses (`'10.1.2.3'`, `'fd12::7'`) and networks (`'10.1.0.0/16'`) to allow, whichever rule refuses them.
   * Default: none.
   */
  readonly allowedAddresses?: readonly string[] | undefined;
  /**
   * Ports to open although browsers block them, since other protocols (such as SMTP or SSH) listen there and may take a
   * request for commands. Default: none; all ports that browsers do not block are open.
   */
  readonly allowedPorts?: readonly number[] | undefined;
}

/** The rules of {@link EgressOptions}, for the options that extend them. */
export const EGRESS = {
  allowHttp: optional(flag, false),
  allowPrivateNetworks: optional(flag, false),
  allowedAddresses: optional(
    list(
      unless<string>((address) => IpNetwork.problemOf(address)),
      'must be a list of addresses and networks, such as ["10.1.0.0/16"]',
    ),
  ),
  allowedPorts: optional(list(whole(1, 65_535), 'must be a list of ports, such as [6000]')),
};
