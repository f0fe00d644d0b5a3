import { once } from 'node:events';
import { createServer, type AddressInfo, type Server, type Socket } from 'node:net';
import { createServer as createTlsServer, type TlsOptions } from 'node:tls';

/** What it does to a connection, told of every request that has come in whole. */
export type Behaviour = (socket: Socket, request: number) => void | Promise<void>;

export interface HostileReceiverOptions {
  /** Speaks TLS with these. */
  readonly tls?: TlsOptions | undefined;
  /** What it does to a connection before it has read anything. */
  readonly onConnection?: ((socket: Socket) => void) | undefined;
}

/** A receiver that does to its sender what no decent one does, and keeps count of what it got away with. */
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

  /** Octets that its closed connections took, those in the buffers of the system included. */
  get bytesWritten(): number {
    return this.written;
  }

  /** Resolves when so many requests have come. */
  async received(count: number): Promise<void> {
    return this.until(() => this.requests >= count);
  }

  /** Resolves when so many connections were made, whatever came over them. */
  async connected(count: number): Promise<void> {
    return this.until(() => this.connections >= count);
  }

  /** Resolves when its sender has let go of every connection. */
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
        // In this order: a test that waits for the request finds what was done to it.
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

/** Where the first request ends. */
function endOf(text: string): number | undefined {
  const head = text.indexOf('\r\n\r\n');
  if (head < 0) return undefined;
  const length = text.startsWith('POST')
    ? Number(/\r\nContent-Length: (\d+)/i.exec(text)?.[1] ?? 0)
    : 0;
  const end = head + 4 + length;
  return text.length < end ? undefined : end;
}

/** Writes for as long as it is listened to, and no faster. */
export async function writeForEver(socket: Socket, chunk: string): Promise<void> {
  while (!socket.destroyed) {
    if (socket.write(chunk)) await new Promise((resolve) => setImmediate(resolve));
    else await Promise.race([once(socket, 'drain'), once(socket, 'close')]);
  }
}
