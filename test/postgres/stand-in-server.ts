import { once } from 'node:events';
import { createServer, type AddressInfo, type Server, type Socket } from 'node:net';

/** A fake PostgreSQL that accepts connections and never works. */
export class StandInServer {
  private readonly sockets = new Set<Socket>();

  private constructor(private readonly server: Server) {}

  /** Answers each client with an error of this SQLSTATE; without one, it never answers. */
  static async start(sqlState?: string): Promise<StandInServer> {
    const server = createServer();
    const standIn = new StandInServer(server);
    server.on('connection', (socket) => {
      standIn.sockets.add(socket);
      socket.on('error', () => {});
      if (sqlState !== undefined) socket.once('data', () => socket.end(refusal(sqlState)));
    });
    await once(server.listen(0, '127.0.0.1'), 'listening');
    return standIn;
  }

  /** With a password that must not be shown. */
  get url(): string {
    const { port } = this.server.address() as AddressInfo;
    return `postgresql://clerk:not-to-be-shown@127.0.0.1:${port}/shop`;
  }

  async stop(): Promise<void> {
    for (const socket of this.sockets) socket.destroy();
    await new Promise((resolve) => this.server.close(resolve));
  }
}

/** @see PostgreSQL, "55.7. Message Formats", ErrorResponse */
function refusal(sqlState: string): Buffer {
  const fields = `SFATAL\0C${sqlState}\0Mit is not-to-be-shown either\0\0`;
  const head = Buffer.from('E\0\0\0\0');
  head.writeInt32BE(4 + fields.length, 1);
  return Buffer.concat([head, Buffer.from(fields)]);
}
