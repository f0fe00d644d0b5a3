import { once } from 'node:events';
import { createServer, type AddressInfo, type Server, type Socket } from 'node:net';
import { createServer as createTlsServer, type TlsOptions } from 'node:tls';

/** Its reaction to a connection, called with every complete request. */
export type Behaviour = (socket: Socket, request: number) => void | Promise<void>;

export interface HostileReceiverOptions {
  /** Speaks TLS with these. */
  readonly tls?: TlsOptions | undefined;
  /** Its reaction to a connection before it has read anything. */
  readonly onConnection?: ((socket: Socket) => void) | undefined;
}

/** A receiver that misbehaves, and counts the bytes that its sender accepted. */
export class HostileReceiver {
  requests = 0;
  connections = 0;
  private readonly sockets = new Set<Socket>();
  private readonly waiting: { readonly met: () => boolean; readonly resolve: () => void }[] = [];
  private written = 0;

  private constructor(
    private readonly server: Server,
    private readonly isTls: boolean,
    private readonly behave: Behaviour,
    onConnection: (socket: Socket) => void,
  ) {
    server.on('connection', (socket: Socket) => {
      this.connections++;
      this.sockets.add(socket);
      socket.on('error', () => {});
      socket.on('close', () => {
        this.sockets.delete(socket);
        this.written += socket.bytesWritten;
        this.look();
      });
      onConnection(socket);
      this.look();
    });
    server.on(isTls ? 'secureConnection' : 'connection', (socket: Socket) => this.serve(socket));
    server.on('tlsClientError', () => {});
  }

  static async start(
    behave: Behaviour,
    { tls, onConnection = () => {} }: HostileReceiverOptions = {},
  ): Promise<HostileReceiver> {
    const server = tls === undefined ? createServer() : createTlsServer(tls);
    const receiver = new HostileReceiver(server, tls !== undefined, behave, onConnection);
    server.listen(0, '127.0.0.1');
    await once(server, 'listening');
    return receiver;
  }

  get url(): string {
    const { port } = this.server.address() as AddressInfo;
    return `${this.isTls ? 'https' : 'http'}://127.0.0.1:${port}/hooks`;
  }

  /** Bytes that its closed connections accepted, including those in system buffers. */
  get bytesWritten(): number {
    return this.written;
  }

  /** Resolves when this many requests have arrived. */
  async received(count: number): Promise<void> {
    return this.until(() => this.requests >= count);
  }

  /** Resolves when this many connections were opened, with or without a request. */
  async connected(count: number): Promise<void> {
    return this.until(() => this.connections >= count);
  }

  /** Resolves when its sender has closed every connection. */
  async released(): Promise<void> {
    return this.until(() => this.sockets.size === 0);
  }

  async stop(): Promise<void> {
    for (const socket of this.sockets) socket.destroy();
    this.server.close();
    await once(this.server, 'close');
  }

  private serve(socket: Socket): void {
    let buffered = '';
    socket.on('error', () => {});
    socket.on('data', (chunk) => {
      buffered += chunk.toString('latin1');
      for (let end = endOf(buffered); end !== undefined; end = endOf(buffered)) {
        buffered = buffered.slice(end);
        const request = ++this.requests;
        // In this order: a test that waits for the request sees the reaction to it.
        void Promise.resolve(this.behave(socket, request)).catch(() => {});
        this.look();
      }
    });
  }

  private async until(met: () => boolean): Promise<void> {
    if (met()) return;
    await new Promise<void>((resolve) => this.waiting.push({ met, resolve }));
  }

  private look(): void {
    for (const { met, resolve } of this.waiting) if (met()) resolve();
  }
}

/** Offset of the end of the first request. */
function endOf(text: string): number | undefined {
  const head = text.indexOf('\r\n\r\n');
  if (head < 0) return undefined;
  const length = text.startsWith('POST')
    ? Number(/\r\nContent-Length: (\d+)/i.exec(text)?.[1] ?? 0)
    : 0;
  const end = head + 4 + length;
  return text.length < end ? undefined : end;
}

/** Writes as long and as fast as the other side reads. */
export async function writeForever(socket: Socket, chunk: string): Promise<void> {
  while (!socket.destroyed) {
    if (socket.write(chunk)) await new Promise((resolve) => setImmediate(resolve));
    else await Promise.race([once(socket, 'drain'), once(socket, 'close')]);
  }
}
