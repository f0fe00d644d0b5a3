import type { LookupAddress } from 'node:dns';
import { isIP } from 'node:net';
import { inTime, SystemClock } from '../clock/webhook-clock.js';
import { isWebhookError, WebhookDestinationBlockedError } from '../errors/webhook.error.js';
import { flag, list, optional, unless, whole } from '../options/rules.js';
import { type HostLookup, lookupHost } from './host-lookup.js';
import { IpNetwork, parseIpAddress } from './ip-network.js';
import { specialNetworkOf } from './special-networks.js';

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

/**
 * Ports of other protocols, which a request could speak to by accident or on purpose.
 *
 * @see WHATWG Fetch, "port blocking"
 */
const BLOCKED_PORTS: ReadonlySet<number> = new Set([
  1, 7, 9, 11, 13, 15, 17, 19, 20, 21, 22, 23, 25, 37, 42, 43, 53, 69, 77, 79, 87, 95, 101, 102,
  103, 104, 109, 110, 111, 113, 115, 117, 119, 123, 135, 137, 139, 143, 161, 179, 389, 427, 465,
  512, 513, 514, 515, 526, 530, 531, 532, 540, 548, 554, 556, 563, 587, 601, 636, 989, 990, 993,
  995, 1719, 1720, 1723, 2049, 3659, 4045, 4190, 5060, 5061, 6000, 6566, 6665, 6666, 6667, 6668,
  6669, 6679, 6697, 10080,
]);

const RESOLVER = 'correct what the resolver returns';

/** Names that always mean this machine, RFC 6761, section 6.3. */
const LOCALHOST = /^(?:[^:/@]*\.)?localhost\.*$/i;

export const LOOPBACK_NETWORKS: readonly string[] = ['127.0.0.0/8', '::1'];
const LOOPBACK = LOOPBACK_NETWORKS.map((network) => IpNetwork.of(network));

/** Whether a host is this machine: a loopback address, also in the brackets of a URL, or a `localhost` name. */
export function isLoopback(host: string): boolean {
  const address = parseIpAddress(withoutBrackets(host));
  if (address === undefined) return LOCALHOST.test(host);
  return LOOPBACK.some((network) => network.contains(address));
}

/**
 * Decides where deliveries may go.
 *
 * A URL is as safe as the address it resolves to when the connection is made. The checks made here when an
 * endpoint is registered are repeated by {@link createGuardedAgents} for every connection.
 */
export class EgressPolicy {
  private readonly allowHttp: boolean;
  private readonly allowPrivateNetworks: boolean;
  private readonly allowed: readonly IpNetwork[];
  private readonly allowedPorts: ReadonlySet<number>;

  /** @param options - checked ones */
  constructor(options: EgressOptions) {
    this.allowHttp = options.allowHttp ?? false;
    this.allowPrivateNetworks = options.allowPrivateNetworks ?? false;
    this.allowed = (options.allowedAddresses ?? []).map((network) => IpNetwork.of(network));
    this.allowedPorts = new Set(options.allowedPorts);
  }

  /**
   * Checks the URL alone: its scheme, its port, that it has no credentials, and its host if that is an address
   * in any notation or a `localhost` name.
   *
   * @returns the URL as the WHATWG parser reads it, which is what must be called
   * @throws {@link WebhookDestinationBlockedError}
   */
  checkUrl(url: string | URL): URL {
    const parsed = parse(url);
    if (parsed.protocol !== 'https:' && !(parsed.protocol === 'http:' && this.allowHttp)) {
      throw new WebhookDestinationBlockedError(
        parsed.protocol === 'http:'
          ? 'The destination was refused: plain http: sends the token unencrypted; use https:, or set allowHttp.'
          : `The destination was refused: its scheme is not ${this.allowHttp ? 'https: or http:' : 'https:'}.`,
      );
    }
    if (parsed.username !== '' || parsed.password !== '') {
      throw new WebhookDestinationBlockedError(
        'The destination was refused: a user name or password in the URL would replace the token; remove it.',
      );
    }
    if (parsed.port === '0') {
      throw new WebhookDestinationBlockedError(
        'The destination was refused: nothing can listen on port 0; correct the port, or leave it out.',
      );
    }
    const port = Number(parsed.port);
    if (BLOCKED_PORTS.has(port) && !this.allowedPorts.has(port)) {
      throw new WebhookDestinationBlockedError(
        `The destination was refused: port ${port} belongs to another protocol, and browsers block it too; use another port, or add it to allowedPorts.`,
      );
    }
    const host = withoutBrackets(parsed.hostname);
    if (isIP(host) !== 0) this.checkAddress(host);
    else if (LOCALHOST.test(host)) this.checkLocalhost(host);
    return parsed;
  }

  /** @throws {@link WebhookDestinationBlockedError} */
  checkAddress(address: string): void {
    const problem = this.problemOf(address);
    if (problem !== undefined)
      throw refusal('is', problem, isIP(address) === 0 ? undefined : address);
  }

  /**
   * Checks all addresses a name has; a single bad one refuses the name.
   *
   * @throws {@link WebhookDestinationBlockedError}, which names the rule but not the address: a
   *   tenant who registers an endpoint must not learn how names resolve inside the network
   */
  checkResolved(hostname: string, addresses: readonly LookupAddress[]): void {
    for (const { address } of addresses) {
      const problem = this.problemOf(address);
      if (problem !== undefined) throw refusal('resolves to an address', problem, hostname);
    }
  }

  /**
   * Checks a URL and every address its host resolves to now. A name that does not resolve within 3 s passes:
   * DNS may be down for a moment, and every attempt checks again.
   *
   * @param lookup - resolves the host's name; default: {@link lookupHost}
   * @returns the URL as the WHATWG parser reads it, which is what must be called
   * @throws {@link WebhookDestinationBlockedError}
   */
  async checkResolvedUrl(url: string | URL, lookup: HostLookup = lookupHost): Promise<URL> {
    const parsed = this.checkUrl(url);
    const host = withoutBrackets(parsed.hostname);
    if (isIP(host) === 0) this.checkResolved(host, await addressesOf(host, lookup));
    return parsed;
  }

  /** Passes if either loopback address is allowed: the lookup decides which one the name means. */
  private checkLocalhost(host: string): void {
    const problem = this.problemOf('127.0.0.1');
    if (problem !== undefined && this.problemOf('::1') !== undefined)
      throw refusal('is', problem, host);
  }

  /** The rule that forbids the address, and the option that would lift it. */
  private problemOf(address: string): Problem | undefined {
    const ip = parseIpAddress(address);
    if (ip === undefined) return { rule: 'not an IP address', remedy: RESOLVER };
    if (this.allowed.some((network) => network.contains(ip))) return undefined;
    const special = specialNetworkOf(ip);
    if (special === undefined || (special.private && this.allowPrivateNetworks)) return undefined;
    return {
      rule: special.rule,
      remedy: special.private
        ? 'if this is intended, set allowPrivateNetworks or add it to allowedAddresses'
        : 'if this is intended, add it to allowedAddresses',
    };
  }
}

/** Milliseconds for which the check of a URL waits for its turn and its addresses. */
const RESOLVING_TIME = 3_000;

interface Problem {
  /** Completes "it is …". */
  readonly rule: string;
  readonly remedy: string;
}

/** @param host - a host name or address, which is safe to show; never the URL */
function refusal(relation: string, { rule, remedy }: Problem, host?: string): Error {
  const destination = host === undefined ? 'The destination' : `The destination "${host}"`;
  return new WebhookDestinationBlockedError(
    `${destination} was refused: it ${relation} ${rule}; ${remedy}.`,
  );
}

function parse(url: string | URL): URL {
  try {
    return new URL(url);
  } catch {
    // The parser's own error quotes its input, which may hold credentials.
    throw new WebhookDestinationBlockedError(
      'The destination was refused: it is not an absolute URL; write one such as "https://example.com/webhooks".',
    );
  }
}

/** @param host - of a URL, in which IPv6 has brackets */
export function withoutBrackets(host: string): string {
  return host.replace(/^\[|\]$/g, '');
}

/** Resolves with none for a name that does not resolve in time. */
async function addressesOf(host: string, lookup: HostLookup): Promise<LookupAddress[]> {
  let isLate = false;
  const find = async (): Promise<LookupAddress[]> =>
    new Promise((resolve) => {
      lookup(host, { all: true, isWanted: () => !isLate }, (error, addresses) =>
        resolve(error ? [] : addresses),
      );
    });
  try {
    return await inTime(new SystemClock(), RESOLVING_TIME, find, () => new Error('no answer'));
  } catch {
    isLate = true;
    return [];
  }
}

/**
 * Finds the egress guard's error in an error of an HTTP client: the error itself, one of its causes, or one
 * of the errors of an `AggregateError`.
 */
export function blockedDestination(error: unknown): WebhookDestinationBlockedError | undefined {
  const open: unknown[] = [error];
  const seen = new Set<unknown>();
  while (open.length > 0) {
    const next = open.pop();
    if (typeof next !== 'object' || next === null || seen.has(next)) continue;
    seen.add(next);
    if (isWebhookError(next, 'destination_blocked')) return next as WebhookDestinationBlockedError;
    // By shape, since clients wrap errors in their own classes, possibly of another realm.
    const { cause, errors } = next as { cause?: unknown; errors?: unknown };
    open.push(cause, ...(Array.isArray(errors) ? (errors as unknown[]) : []));
  }
  return undefined;
}
