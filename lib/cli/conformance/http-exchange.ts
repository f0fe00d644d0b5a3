import { connect as connectTcp, type Socket } from 'node:net';
import { connect as connectTls } from 'node:tls';
import type { ProbeAnswer, ProbeOutcome, ProbeRequest } from './probe.interface.js';

/** The receiver under test. */
export interface ExchangeTarget {
  readonly url: URL;
  /** Milliseconds for a connection, and for each answer. */
  readonly timeout: number;
  /** PEM of the certificate authority to trust instead of Node's own. */
  readonly ca?: string | undefined;
}

/**
 * Sends requests one by one and reads their answers. Uses sockets, because an HTTP client refuses to send half of what the
 * probes need.
 *
 * @throws the socket's error, if no connection can be made
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
      outcomes.push(await connection.send(request));
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
    // A receiver may end a connection with a reset.
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

  async send(request: ProbeRequest): Promise<ProbeOutcome> {
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

/** An IP address is not allowed as a server name (RFC 6066, section 3). */
function serverName(host: string): string | undefined {
  return /^[\d.]+$|:/.test(host) ? undefined : host;
}

const HEAD_END = '\r\n\r\n';

/** An answer and its length in bytes. */
interface ParsedAnswer {
  readonly answer: ProbeAnswer;
  readonly length: number;
}

/**
 * Parses an answer (RFC 9112, section 6.3).
 *
 * @param method - of the request: an answer to HEAD has no body, whatever its headers say
 * @param ended - whether the connection has ended
 * @returns `undefined` if the answer is not complete
 */
export function parseAnswer(
  bytes: Buffer,
  method: string,
  ended: boolean,
): ParsedAnswer | undefined {
  const end = bytes.indexOf(HEAD_END);
  if (end === -1) return undefined;
  const [statusLine = '', ...lines] = bytes.toString('latin1', 0, end).split('\r\n');
  const status = Number(/^HTTP\/1\.[01] (\d{3})/.exec(statusLine)?.[1] ?? 0);
  const start = end + HEAD_END.length;
  // An interim answer precedes the final one.
  if (status >= 100 && status < 200) {
    const final = parseAnswer(bytes.subarray(start), method, ended);
    return final && { ...final, length: final.length + start };
  }
  const headers = parseHeaders(lines);
  const body = parseBody(bytes.subarray(start), { method, status, headers, ended });
  if (body === undefined) return undefined;
  const answer = { status, headers, body: body.bytes.toString() };
  return { answer, length: start + body.length };
}

function parseHeaders(lines: readonly string[]): Map<string, string> {
  const headers = new Map<string, string>();
  for (const line of lines) {
    const colon = line.indexOf(':');
    const name = line.slice(0, colon).toLowerCase();
    const value = line.slice(colon + 1).trim();
    const before = headers.get(name);
    headers.set(name, before === undefined ? value : `${before}, ${value}`);
  }
  return headers;
}

interface Body {
  readonly bytes: Buffer;
  readonly length: number;
}

function parseBody(
  bytes: Buffer,
  framing: { method: string; status: number; headers: Map<string, string>; ended: boolean },
): Body | undefined {
  const { method, status, headers, ended } = framing;
  if (method === 'HEAD' || status === 204 || status === 304) {
    return { bytes: Buffer.alloc(0), length: 0 };
  }
  if (/chunked/i.test(headers.get('transfer-encoding') ?? '')) return parseChunks(bytes);
  const declared = headers.get('content-length');
  const length = declared === undefined ? bytes.length : Number(declared);
  const complete = declared === undefined ? ended : bytes.length >= length;
  return complete ? { bytes: bytes.subarray(0, length), length } : undefined;
}

function parseChunks(bytes: Buffer): Body | undefined {
  const chunks: Buffer[] = [];
  for (let at = 0; ;) {
    const lineEnd = bytes.indexOf('\r\n', at);
    if (lineEnd === -1) return undefined;
    const size = Number.parseInt(bytes.toString('latin1', at, lineEnd), 16);
    const start = lineEnd + 2;
    const next = start + size + 2;
    if (!(size >= 0) || bytes.length < next) return undefined;
    if (size === 0) return { bytes: Buffer.concat(chunks), length: next };
    chunks.push(bytes.subarray(start, start + size));
    at = next;
  }
}
