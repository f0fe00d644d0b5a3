import { once } from 'node:events';
import http from 'node:http';
import { type AddressInfo, connect, type Socket } from 'node:net';

/** A proxy on loopback, for CONNECT only. */
export class ConnectProxy {
  /** What it was asked to connect to. */
  readonly targets: string[] = [];
  readonly authorizations: (string | undefined)[] = [];
  /** Everything that was sent through it. */
  readonly seen: Buffer[] = [];
  /** Answers with this status line and connects to nothing. */
  refusal: string | undefined;
  /** Where it connects to instead. */
  port: number | undefined;
  private readonly sockets = new Set<Socket>();

  private constructor(private readonly server: http.Server) {
    server.on('connect', (request, socket: Socket) => this.serve(request, socket));
    server.on('connection', (socket) => this.sockets.add(socket));
  }

  static async start(): Promise<ConnectProxy> {
    const server = http.createServer();
    server.listen(0, '127.0.0.1');
    await once(server, 'listening');
    return new ConnectProxy(server);
  }

  get origin(): string {
    return `127.0.0.1:${(this.server.address() as AddressInfo).port}`;
  }

  async stop(): Promise<void> {
    for (const socket of this.sockets) socket.destroy();
    this.server.close();
    await once(this.server, 'close');
  }

  private serve({ url = '', headers }: http.IncomingMessage, socket: Socket): void {
    this.targets.push(url);
    this.authorizations.push(headers['proxy-authorization']);
    socket.on('error', () => {});
    if (this.refusal !== undefined) return void socket.end(`${this.refusal}\r\n\r\n`);
    const [, host, port] = /^\[?([^\]]*)\]?:(\d+)$/.exec(url) ?? [];
    const target = connect(
      this.port ?? Number(port),
      this.port === undefined ? host! : '127.0.0.1',
    );
    this.sockets.add(target);
    target.on('error', () => socket.destroy());
    target.on('connect', () => {
      socket.write('HTTP/1.1 200 Connection established\r\n\r\n');
      socket.on('data', (chunk: Buffer) => this.seen.push(chunk));
      socket.pipe(target).pipe(socket);
    });
  }
}
