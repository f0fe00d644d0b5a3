import http, { type IncomingMessage } from 'node:http';
import https from 'node:https';
import { blockedDestination, type EgressPolicy } from '../egress/egress-policy.js';
import {
  createGuardedAgents,
  type EgressTlsOptions,
  requireFinalAnswer,
} from '../egress/guarded-agent.js';
import { decodeUtf8 } from '../token/decoding.js';
import { parseJson } from '../token/json.js';
import { ByteChunks } from '../token/payload.js';
import { reasonOf } from './key-log.js';

/** A request for a JSON document: a GET, or a POST if it has a body. */
export interface JsonRequest {
  readonly headers: Readonly<Record<string, string>>;
  /** JSON. */
  readonly body?: string | undefined;
  readonly signal: AbortSignal;
  /** Bytes of the answer. */
  readonly maxBytes: number;
}

/** No document was read. The message gives the reason, and quotes nothing of the answer. */
export class UnreadableAnswer extends Error {
  constructor(
    message: string,
    /** The header Retry-After of the answer. */
    readonly retryAfter?: string,
    options?: ErrorOptions,
  ) {
    super(message, options);
  }
}

/**
 * Creates a client that reads JSON documents: through the egress policy, without redirects or proxies, and with a limit on bytes.
 *
 * @returns a function that rejects with {@link UnreadableAnswer}
 */
export function createJsonClient({
  policy,
  ca,
}: {
  readonly policy: EgressPolicy;
  readonly ca: EgressTlsOptions['ca'];
}): (url: URL, request: JsonRequest) => Promise<unknown> {
  const { httpAgent, httpsAgent } = createGuardedAgents(policy, { tls: { ca } });
  return async (url, { headers, body: content, signal, maxBytes }) => {
    const secure = url.protocol === 'https:';
    const isPost = content !== undefined;
    let body: Buffer;
    try {
      const request = (secure ? https : http).request(url, {
        method: isPost ? 'POST' : 'GET',
        agent: secure ? httpsAgent : httpAgent,
        headers: {
          ...headers,
          'accept-encoding': 'identity',
          ...(isPost && {
            'content-type': 'application/json',
            'content-length': Buffer.byteLength(content),
          }),
        },
        signal,
      });
      body = await answerTo(request.end(content), maxBytes, isPost);
    } catch (error) {
      if (signal.aborted) throw new UnreadableAnswer('no complete answer arrived in time');
      if (error instanceof UnreadableAnswer) throw error;
      const cause = blockedDestination(error) ?? error;
      throw new UnreadableAnswer(`the request failed, ${reasonOf(cause)}`, undefined, { cause });
    }
    const document = parseJson(decodeUtf8(body) ?? '');
    if (document === undefined) throw new UnreadableAnswer('the answer is not JSON');
    return document;
  };
}

function answerTo(request: http.ClientRequest, maxBytes: number, isPost: boolean): Promise<Buffer> {
  return new Promise((resolve, reject) => {
    requireFinalAnswer(request);
    request.on('error', reject);
    request.once('response', (response) => {
      const refuse = (reason: string): void => {
        reject(new UnreadableAnswer(reason, response.headers['retry-after']));
        request.destroy();
      };
      const tooLarge = `the answer has more than ${maxBytes} bytes`;
      const { 'content-length': length = 0 } = response.headers;
      const problem = headProblem(response, isPost);
      if (problem !== undefined) return refuse(problem);
      if (Number(length) > maxBytes) return refuse(tooLarge);
      const chunks = new ByteChunks();
      response.on('data', (chunk: Buffer) => {
        chunks.add(chunk);
        if (chunks.length > maxBytes) refuse(tooLarge);
      });
      response.once('end', () => {
        const isEmpty = isPost && chunks.length === 0 && response.statusCode !== 200;
        resolve(isEmpty ? Buffer.from('{}') : chunks.bytes());
      });
      // An interrupted answer ends with an error, not with `end`.
      response.on('error', reject);
    });
  });
}

/** Successes; a POST that only reports something may get one without a document. */
const ACCEPTED: readonly number[] = [200, 202, 204];

function headProblem(
  { statusCode = 0, headers }: IncomingMessage,
  isPost: boolean,
): string | undefined {
  if (statusCode >= 300 && statusCode < 400) {
    return `the answer has status ${statusCode}, and redirects are not followed: configure the final address`;
  }
  if (!ACCEPTED.slice(0, isPost ? 3 : 1).includes(statusCode)) {
    return `the answer has status ${statusCode}`;
  }
  return (headers['content-encoding'] ?? 'identity') === 'identity'
    ? undefined
    : 'the answer is compressed';
}
