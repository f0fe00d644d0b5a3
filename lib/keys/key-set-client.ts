import http, { type IncomingMessage } from 'node:http';
import https from 'node:https';
import { blockedDestination } from '../egress/blocked-destination.js';
import { createGuardedAgents } from '../egress/guarded-agent.js';
import { WebhookStoreError } from '../errors/webhook.error.js';
import { decodeUtf8, parseJson } from '../token/json/strict-json.js';
import type { ResolvedJwksOptions } from './jwks-options.js';
import { reasonOf } from './key-log.js';

/** Enough for a hundred keys with certificates. */
const MAX_SET_BYTES = 65_536;

/** Reads the JSON document at an address. */
export type FetchJson = (url: URL) => Promise<unknown>;

/**
 * Creates the client that reads key sets: through the egress policy, without redirects or proxies, and with a limit
 * on time and bytes.
 *
 * @returns a function that rejects with {@link WebhookStoreError} `keys_unavailable`; the message gives the reason
 *   and quotes nothing of the answer
 */
export function createKeySetClient({ policy, ca, timeout }: ResolvedJwksOptions): FetchJson {
  const { httpAgent, httpsAgent } = createGuardedAgents(policy, { tls: { ca } });
  return async (url) => {
    const signal = AbortSignal.timeout(timeout);
    const secure = url.protocol === 'https:';
    const request = (secure ? https : http).request(url, {
      agent: secure ? httpsAgent : httpAgent,
      headers: {
        accept: 'application/jwk-set+json, application/json',
        'accept-encoding': 'identity',
      },
      signal,
    });
    let body: Buffer;
    try {
      body = await answerTo(request.end());
    } catch (error) {
      if (signal.aborted) throw unreadable('no complete answer arrived in time');
      if (error instanceof WebhookStoreError) throw error;
      throw unreadable(`the request failed, ${reasonOf(blockedDestination(error) ?? error)}`);
    }
    const document = parseJson(decodeUtf8(body) ?? '');
    if (document === undefined) throw unreadable('the answer is not JSON');
    return document;
  };
}

function answerTo(request: http.ClientRequest): Promise<Buffer> {
  return new Promise((resolve, reject) => {
    request.on('error', reject);
    request.once('response', (response) => {
      const refuse = (reason: string): void => {
        reject(unreadable(reason));
        request.destroy();
      };
      const fault = headFault(response);
      if (fault !== undefined) return refuse(fault);
      const chunks: Buffer[] = [];
      let bytes = 0;
      response.on('data', (chunk: Buffer) => {
        bytes += chunk.length;
        if (bytes > MAX_SET_BYTES) return refuse(TOO_LARGE);
        chunks.push(chunk);
      });
      response.once('end', () => resolve(Buffer.concat(chunks)));
      // An interrupted answer ends with an error, not with `end`.
      response.on('error', reject);
    });
  });
}

const TOO_LARGE = `the answer has more than ${MAX_SET_BYTES} bytes`;

function headFault({ statusCode = 0, headers }: IncomingMessage): string | undefined {
  if (statusCode >= 300 && statusCode < 400) {
    return `the answer has status ${statusCode}, and redirects are not followed: configure the final address`;
  }
  if (statusCode !== 200) return `the answer has status ${statusCode}`;
  if ((headers['content-encoding'] ?? 'identity') !== 'identity') return 'the answer is compressed';
  return Number(headers['content-length'] ?? 0) > MAX_SET_BYTES ? TOO_LARGE : undefined;
}

/** The error of a key set that could not be read. */
export function unreadable(reason: string): WebhookStoreError {
  return new WebhookStoreError('keys_unavailable', reason);
}
