import { createServer, type Server, type Socket } from 'node:net';
import type { AddressInfo } from 'node:net';
import { once } from 'node:events';

/** One request, as its bytes arrived. */
export interface WireRequest {
  readonly method: string;
  readonly path: string;
  /** Names as sent. */
  readonly headers: readonly (readonly [name: string, value: string])[];
  readonly headBytes: number;
  readonly body: Buffer;
  readonly token: string;
  /** The token's claims; not verified. */
  readonly claims: any;
}

export interface WireAnswer {
  readonly status: number;
  readonly headers?: Readonly<Record<string, string>>;
  readonly body?: string;
}

/** `reset` and `hang` are answers, too; a string is written unchanged. */
export type Script = (
  request: WireRequest,
  index: number,
) => WireAnswer | 'reset' | 'hang' | string;

/** A receiver on a bare socket, so that a test sees the bytes on the wire and not a parsed request. */
export class WireReceiver {
  readonly requests: WireRequest[] = [];
  connections = 0;
  private readonly sockets = new Set<Socket>();
  private readonly held: { readonly socket: Socket; readonly request: WireRequest }[] = [];
  private readonly waiting: { readonly count: number; readonly resolve: () => void }[] = [];

  private constructor(
    private readonly server: Server,
    public script: Script,
  ) {
    server.on('connection', (socket) => this.serve(socket));
  }

  static async start(script: Script = () => ({ status: 204 })): Promise<WireReceiver> {
    const receiver = new WireReceiver(createServer(), script);
    receiver.server.listen(0, '127.0.0.1');
    await once(receiver.server, 'listening');
    return receiver;
  }

  get port(): number {
    return (this.server.address() as AddressInfo).port;
  }

  get url(): string {
    return `http://127.0.0.1:${this.port}/hooks`;
  }

  /** Resolves when this many requests have arrived since the start. */
  async received(count: number): Promise<void> {
    if (this.requests.length >= count) return;
    await new Promise<void>((resolve) => this.waiting.push({ count, resolve }));
  }

  /** Answers the requests that were left hanging. */
  answerHeld(answer: WireAnswer): void {
    for (const { socket, request } of this.held.splice(0)) this.write(socket, request, answer);
  }

  async stop(): Promise<void> {
    for (const socket of this.sockets) socket.destroy();
    this.server.close();
    await once(this.server, 'close');
  }

  private serve(socket: Socket): void {
    this.connections++;
    this.sockets.add(socket);
    let buffered: Buffer = Buffer.alloc(0);
    socket.on('error', () => {});
    socket.on('close', () => this.sockets.delete(socket));
    socket.on('data', (chunk) => {
      buffered = Buffer.concat([buffered, chunk]);
      for (let taken = take(buffered); taken !== undefined; taken = take(buffered)) {
        buffered = taken.rest;
        this.answer(socket, taken.request);
      }
    });
  }

  private answer(socket: Socket, request: WireRequest): void {
    this.requests.push(request);
    const answer = this.script(request, this.requests.length - 1);
    for (const { count, resolve } of this.waiting) if (this.requests.length >= count) resolve();
    if (answer === 'hang') return void this.held.push({ socket, request });
    if (answer === 'reset') return void socket.resetAndDestroy();
    if (typeof answer === 'string') return void socket.write(answer);
    this.write(socket, request, answer);
  }

  private write(socket: Socket, request: WireRequest, answer: WireAnswer): void {
    const { status, headers = {}, body = '' } = answer;
    const lines = Object.entries(headers).map(([name, value]) => `${name}: ${value}\r\n`);
    const length = status === 204 ? '' : `Content-Length: ${Buffer.byteLength(body)}\r\n`;
    const sent = request.method === 'HEAD' ? '' : body;
    socket.write(`HTTP/1.1 ${status} x\r\n${length}${lines.join('')}\r\n${sent}`);
  }
}

function take(buffered: Buffer): { request: WireRequest; rest: Buffer } | undefined {
  const end = buffered.indexOf('\r\n\r\n');
  if (end < 0) return undefined;
  const [line = '', ...lines] = buffered.subarray(0, end).toString('latin1').split('\r\n');
  const headers = lines.map((text) => {
    const colon = text.indexOf(': ');
    return [text.slice(0, colon), text.slice(colon + 2)] as const;
  });
  const valueOf = (wanted: string): string =>
    headers.find(([name]) => name.toLowerCase() === wanted)?.[1] ?? '';
  const [method = '', path = ''] = line.split(' ');
  const bodyStart = end + 4;
  const bodyEnd = bodyStart + (method === 'HEAD' ? 0 : Number(valueOf('content-length')));
  if (buffered.length < bodyEnd) return undefined;
  const token = valueOf('authorization').replace(/^Bearer /, '');
  return {
    request: {
      method,
      path,
      headers,
      headBytes: bodyStart,
      body: buffered.subarray(bodyStart, bodyEnd),
      token,
      claims: JSON.parse(Buffer.from(token.split('.')[1] ?? '', 'base64url').toString() || 'null'),
    },
    rest: buffered.subarray(bodyEnd),
  };
}
