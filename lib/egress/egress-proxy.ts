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

/** What the proxy answers if the endpoint cannot be reached, with the code of the same failure without a proxy. */
const UNREACHABLE: Readonly<Record<number, string>> = {
  502: 'ECONNREFUSED',
  503: 'ECONNREFUSED',
  504: 'ETIMEDOUT',
};

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

  /**
   * @param url - one without a {@link problemOf}
   * @param ca - authorities for an `https:` proxy; default: those of Node
   */
  constructor(
    url: string,
    private readonly ca?: AgentOptions['ca'],
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
    const request = this.request(target, signal);
    return new Promise((resolve, reject) => {
      request.once('connect', ({ statusCode = 0 }, socket: Duplex, head: Buffer) => {
        // Bytes ahead of the first request would be read as its answer.
        const isOpen = statusCode >= 200 && statusCode < 300 && head.length === 0;
        if (isOpen) return resolve(socket);
        socket.destroy();
        reject(refusalOf(statusCode));
      });
      request.once('response', (response) => {
        response.destroy();
        reject(refusalOf(0));
      });
      const connected = this.#url.protocol === 'https:' ? 'secureConnect' : 'connect';
      request.once('socket', (socket) =>
        socket.once(connected, () => request.setTimeout(TUNNEL_TIMEOUT)),
      );
      request.once('timeout', () => request.destroy(failure('did not answer in time')));
      request.once('error', (cause) => reject(failure('cannot be reached', cause)));
      request.end();
    });
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

function refusalOf(status: number): Error {
  const code = UNREACHABLE[status];
  if (code === undefined) return failure(`answered with status ${status}`);
  return Object.assign(new Error('The egress proxy cannot reach the destination.'), { code });
}

function failure(what: string, cause?: unknown): Error {
  return Object.assign(new Error(`The egress proxy ${what}.`, { cause }), { code: PROXY_FAILED });
}
