import { connect as connectTcp, type Socket } from 'node:net';
import { connect as connectTls } from 'node:tls';
import type { ProbeOutcome, ProbeRequest } from './probe.interface.js';
import { parseAnswer } from './parse-answer.js';

/** Where the receiver listens. */
export interface ExchangeTarget {
  readonly url: URL;
  /** Milliseconds for a connection, and for each answer. */
  readonly timeout: number;
  /** PEM of an authority to trust besides Node's own. */
  readonly ca?: string | undefined;
}

/**
 * Sends requests one after the other and takes their answers, on sockets of its own: an HTTP client would
 * not send half of what the probes are about.
 *
 * @throws an error of the socket, where no connection could be made
 */
export async function exchange(
  target: ExchangeTarget,
  requests: readonly ProbeRequest[],
): Promise<ProbeOutcome[]> {
  const outcomes: ProbeOutcome[] = [];
  let connection: Connection | undefined;
  try {
    for (const request of requests) {
      if (connection === undefined || request.sameConnection !== true) {
        connection?.close();
        connection = await Connection.open(target);
      }
      outcomes.push(await connection.ask(request));
    }
  } finally {
    connection?.close();
  }
  return outcomes;
}

class Connection {
  private received = Buffer.alloc(0);
  private ended = false;
  private wake: () => void = () => undefined;

  private constructor(
    private readonly socket: Socket,
    private readonly target: ExchangeTarget,
  ) {
    socket.on('data', (chunk: Buffer) => {
      this.received = Buffer.concat([this.received, chunk]);
      this.wake();
    });
    // A reset is one of the ways in which a receiver ends a connection.
    socket.on('error', () => undefined);
    socket.on('close', () => {
      this.ended = true;
      this.wake();
    });
    socket.on('end', () => {
      this.ended = true;
      this.wake();
    });
  }

  static open(target: ExchangeTarget): Promise<Connection> {
    const { url, timeout, ca } = target;
    const secure = url.protocol === 'https:';
    const host = url.hostname.replace(/^\[|\]$/g, '');
    const port = Number(url.port) || (secure ? 443 : 80);
    return new Promise((resolve, reject) => {
      const socket = secure
        ? connectTls({ host, port, servername: serverName(host), ca, ALPNProtocols: ['http/1.1'] })
        : connectTcp({ host, port });
      const timer = setTimeout(() => {
        socket.destroy(new Error('no connection could be made in time'));
      }, timeout);
      socket.once('error', reject);
      socket.once('close', () => clearTimeout(timer));
      socket.once(secure ? 'secureConnect' : 'connect', () => {
        clearTimeout(timer);
        socket.off('error', reject);
        resolve(new Connection(socket, target));
      });
    });
  }

  async ask(request: ProbeRequest): Promise<ProbeOutcome> {
    if (this.ended) return 'closed';
    this.socket.write(headOf(request, this.target.url));
    if (request.body !== undefined) this.socket.write(request.body);
    return this.answer(request.method);
  }

  close(): void {
    this.socket.destroy();
  }

  private async answer(method: string): Promise<ProbeOutcome> {
    let expired = false;
    const timer = setTimeout(() => {
      expired = true;
      this.wake();
    }, this.target.timeout);
    try {
      for (;;) {
        const parsed = parseAnswer(this.received, method, this.ended);
        if (parsed !== undefined) {
          this.received = this.received.subarray(parsed.length);
          return parsed.answer;
        }
        if (this.ended) return 'closed';
        if (expired) return 'timeout';
        await new Promise<void>((resolve) => (this.wake = resolve));
      }
    } finally {
      clearTimeout(timer);
    }
  }
}

function headOf(request: ProbeRequest, url: URL): Buffer {
  const { body, contentLength = body?.length ?? 0 } = request;
  const lines = [
    `${request.method} ${url.pathname}${url.search} HTTP/1.1`,
    `Host: ${url.host}`,
    'User-Agent: nestjs-webhook-token-conformance',
    ...request.authorization.map((value) => `Authorization: ${value}`),
    ...request.headers.map(([name, value]) => `${name}: ${value}`),
    ...(contentLength === null ? [] : [`Content-Length: ${contentLength}`]),
  ];
  return Buffer.from(`${lines.join('\r\n')}\r\n\r\n`, 'latin1');
}

/** Node refuses an address as a server name (RFC 6066, section 3). */
function serverName(host: string): string | undefined {
  return /^[\d.]+$|:/.test(host) ? undefined : host;
}
