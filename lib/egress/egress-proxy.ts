import http, { type ClientRequest } from 'node:http';
import https, { type AgentOptions } from 'node:https';
import type { Duplex } from 'node:stream';
import { SECOND } from '../clock/duration.js';
import { withoutBrackets } from './egress-policy.js';

/** The code of an error of the proxy itself, which says nothing about the endpoint. */
export const PROXY_FAILED = 'ERR_EGRESS_PROXY';

/** For the connection to the proxy: before the attempt ends, which would count as a failure of the endpoint. */
const CONNECT_TIMEOUT = 5 * SECOND;
/** For its answer, which may have to wait for the endpoint; the attempt has its own deadline. */
const TUNNEL_TIMEOUT = 30 * SECOND;

/** The proxy itself refuses this process, whatever the destination. */
const UNAUTHORIZED = 407;
const GATEWAY_TIMEOUT = 504;

/** What the proxy answers if the endpoint cannot be reached, with the code of the same failure without a proxy. */
const UNREACHABLE: Readonly<Record<number, string>> = {
  502: 'ECONNREFUSED',
  503: 'ECONNREFUSED',
  [GATEWAY_TIMEOUT]: 'ETIMEDOUT',
};

/** That of the publisher. */
interface ProxyLog {
  warn(message: () => string): void;
  log(message: () => string): void;
}

/**
 * An HTTP proxy that the operator trusts: its own address is not checked.
 *
 * It is asked for tunnels to addresses, never to names, so it resolves nothing, and the egress guard has checked where it
 * connects to.
 *
 * @see RFC 9110, section 9.3.6
 */
export class EgressProxy {
  /** Private, because it may contain a password. */
  readonly #url: URL;
  readonly #headers: Readonly<Record<string, string>>;
  /** Failures that are logged and have not ended, each with its only target, if it has one. */
  private readonly failures = new Map<string, string | undefined>();

  /**
   * @param url - one without a {@link problemOf}
   * @param ca - authorities for an `https:` proxy; default: those of Node
   * @param log - gets each failure of the proxy once, and its end; default: none
   */
  constructor(
    url: string,
    private readonly ca?: AgentOptions['ca'],
    private readonly log?: ProxyLog,
  ) {
    this.#url = new URL(url);
    const { username, password } = this.#url;
    const user = `${decodeURIComponent(username)}:${decodeURIComponent(password)}`;
    this.#headers =
      user === ':'
        ? {}
        : { 'Proxy-Authorization': `Basic ${Buffer.from(user).toString('base64')}` };
  }

  /** What is wrong with the URL of a proxy, without quoting it; `undefined` for a valid one. */
  static problemOf(url: unknown): string | undefined {
    const form = `must be a URL such as 'http://proxy.internal:3128'`;
    if (typeof url !== 'string' || !URL.canParse(url)) return form;
    const { protocol, pathname, search, hash, username, password } = new URL(url);
    if (!['http:', 'https:'].includes(protocol)) {
      return `${form}: only http: and https: proxies are supported`;
    }
    if (pathname !== '/' || search !== '' || hash !== '')
      return `${form}, without a path or a query`;
    try {
      decodeURIComponent(`${username}${password}`);
      return undefined;
    } catch {
      return 'has a user name or password with a wrong escape: write "%" as "%25"';
    }
  }

  /**
   * Opens a tunnel.
   *
   * @param address - an IP address that the egress guard has checked
   * @param signal - ends the attempt to open it
   */
  async connect(address: string, port: number, signal: AbortSignal): Promise<Duplex> {
    const target = `${address.includes(':') ? `[${address}]` : address}:${port}`;
    try {
      const tunnel = await this.open(target, signal);
      this.logEnds(target);
      return tunnel;
    } catch (error) {
      if (error instanceof ProxyFailure && !signal.aborted) this.logOnce(error);
      throw error;
    }
  }

  private async open(target: string, signal: AbortSignal): Promise<Duplex> {
    const request = this.request(target, signal);
    return new Promise((resolve, reject) => {
      let isConnected = false;
      request.once('connect', ({ statusCode = 0 }, socket: Duplex, head: Buffer) => {
        // Bytes ahead of the first request would be read as its answer.
        const isOpen = statusCode >= 200 && statusCode < 300 && head.length === 0;
        if (isOpen) return resolve(socket);
        socket.destroy();
        reject(refusalOf(statusCode, target));
      });
      request.once('response', (response) => {
        response.destroy();
        reject(refusalOf(0, target));
      });
      const connected = this.#url.protocol === 'https:' ? 'secureConnect' : 'connect';
      request.once('socket', (socket) =>
        socket.once(connected, () => {
          isConnected = true;
          request.setTimeout(TUNNEL_TIMEOUT);
        }),
      );
      const fail = (how: string, cause?: unknown): void => {
        const what = isConnected ? 'did not answer' : 'cannot be reached';
        const only = isConnected ? target : undefined;
        reject(new ProxyFailure(`${what} ${how}`, CHECK_URL, only, cause));
      };
      request.once('timeout', () => {
        // A proxy that was reached probably waits for the destination.
        if (isConnected) reject(refusalOf(GATEWAY_TIMEOUT, target));
        else fail('in time');
        request.destroy();
      });
      request.once('error', (cause: NodeJS.ErrnoException) => fail(`(${cause.code})`, cause));
      request.end();
    });
  }

  /** Logs a failure that many deliveries meet once, until it ends. */
  private logOnce({ what, remedy, target }: ProxyFailure): void {
    if (this.failures.has(what)) return;
    this.failures.set(what, target);
    const where = target === undefined ? '' : ` for ${target}`;
    this.log?.warn(
      () =>
        `The egress proxy ${what}${where}. ${remedy}. Deliveries through it are retried on schedule (proxy_failed).`,
    );
  }

  /** Ends the failures that a tunnel disproves: the proxy may still refuse other targets. */
  private logEnds(target: string): void {
    for (const [what, failed] of this.failures) {
      if (failed !== undefined && failed !== target) continue;
      this.failures.delete(what);
      this.log?.log(
        () => `The egress proxy opens connections again; the last warning was that it ${what}.`,
      );
    }
  }

  private request(target: string, signal: AbortSignal): ClientRequest {
    const { protocol, hostname, port } = this.#url;
    const isSecure = protocol === 'https:';
    return (isSecure ? https : http).request({
      method: 'CONNECT',
      host: withoutBrackets(hostname),
      port: port || (isSecure ? 443 : 80),
      path: target,
      headers: { Host: target, ...this.#headers },
      agent: false,
      timeout: CONNECT_TIMEOUT,
      signal,
      ...(isSecure && { ca: this.ca, minVersion: 'TLSv1.2', rejectUnauthorized: true }),
    });
  }
}

const CHECK_URL =
  'Check that it runs, and its scheme, host and port in "publisher.proxy", or its certificate';
const CHECK_PASSWORD = 'Correct the user name and the password in the URL of "publisher.proxy"';
const CHECK_RULES = 'Allow CONNECT to the addresses and ports of your endpoints in its rules';

/** A failure of the proxy itself. */
class ProxyFailure extends Error {
  readonly code = PROXY_FAILED;

  /** @param target - the only one that is known to be affected */
  constructor(
    readonly what: string,
    readonly remedy: string,
    readonly target?: string,
    cause?: unknown,
  ) {
    super(`The egress proxy ${what}.`, { cause });
  }
}

function refusalOf(status: number, target: string): Error {
  const code = UNREACHABLE[status];
  if (code !== undefined) {
    return Object.assign(new Error('The egress proxy cannot reach the destination.'), { code });
  }
  const what = `answered with status ${status}`;
  return status === UNAUTHORIZED
    ? new ProxyFailure(what, CHECK_PASSWORD)
    : new ProxyFailure(what, CHECK_RULES, target);
}
