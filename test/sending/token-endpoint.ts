import { once } from 'node:events';
import http from 'node:http';
import type { AddressInfo } from 'node:net';

/** A request for an access token. */
interface TokenRequest {
  readonly authorization: string | undefined;
  readonly form: Readonly<Record<string, string>>;
}

interface TokenAnswer {
  readonly status?: number;
  readonly headers?: Readonly<Record<string, string>>;
  readonly body: unknown;
}

/** An OAuth 2 server on loopback, which issues `access-token-1`, `access-token-2` and so on. */
export class TokenEndpoint {
  readonly requests: TokenRequest[] = [];
  /** Called before the answer is sent. */
  answering: () => Promise<void> = async () => {};
  answer: (index: number) => TokenAnswer = (index) => ({
    body: { access_token: `access-token-${index}`, token_type: 'Bearer', expires_in: 3_600 },
  });

  private constructor(private readonly server: http.Server) {
    server.on('request', (request, response) => void this.serve(request, response));
  }

  static async start(): Promise<TokenEndpoint> {
    const server = http.createServer();
    server.listen(0, '127.0.0.1');
    await once(server, 'listening');
    return new TokenEndpoint(server);
  }

  get url(): string {
    return `http://127.0.0.1:${(this.server.address() as AddressInfo).port}/token`;
  }

  async stop(): Promise<void> {
    this.server.close();
    this.server.closeAllConnections();
    await once(this.server, 'close');
  }

  private async serve(request: http.IncomingMessage, response: http.ServerResponse): Promise<void> {
    const chunks: Buffer[] = [];
    for await (const chunk of request) chunks.push(chunk as Buffer);
    const form = Object.fromEntries(new URLSearchParams(Buffer.concat(chunks).toString()));
    this.requests.push({ authorization: request.headers.authorization, form });
    const { status = 200, headers, body } = this.answer(this.requests.length);
    await this.answering();
    response.writeHead(status, { 'content-type': 'application/json', ...headers });
    response.end(typeof body === 'string' ? body : JSON.stringify(body));
  }
}
