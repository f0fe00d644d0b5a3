import http, { type IncomingMessage } from 'node:http';
import https from 'node:https';
import type { FetchImplementation } from 'jose';
import { blockedDestination } from '../egress/blocked-destination.js';
import { createGuardedAgents } from '../egress/guarded-agent.js';
import { WebhookStoreError } from '../errors/webhook-store.error.js';
import type { ResolvedJwksOptions } from './jwks-options.js';
import { reasonOf } from './trouble-log.js';

/** A hundred keys with certificates of their own stay below it. */
const MAX_SET_BYTES = 65_536;

/**
 * Makes what reads key sets: through the egress guard, without redirects and proxies, and no more of an
 * answer than a set has.
 *
 * @returns the form of `fetch` that jose asks for; it rejects with {@link WebhookStoreError} `keys_unavailable`, whose
 *   message says why and holds nothing of the answer
 */
export function createJwksFetch({ policy, ca }: ResolvedJwksOptions): FetchImplementation {
  const { httpAgent, httpsAgent } = createGuardedAgents(policy, { tls: { ca } });
  return async (url, { headers, signal }) => {
    try {
      const secure = new URL(url).protocol === 'https:';
      const request = (secure ? https : http).request(url, {
        agent: secure ? httpsAgent : httpAgent,
        headers: { ...Object.fromEntries(headers), 'accept-encoding': 'identity' },
        signal,
      });
      return new Response(await answerTo(request.end()));
    } catch (error) {
      if (signal.aborted) throw unreadable('no complete answer came in time');
      if (error instanceof WebhookStoreError) throw error;
      throw unreadable(`the request failed, ${reasonOf(blockedDestination(error) ?? error)}`);
    }
  };
}

function answerTo(request: http.ClientRequest): Promise<Buffer<ArrayBuffer>> {
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
      // An answer that breaks off ends with an error, not with `end`.
      response.on('error', reject);
    });
  });
}

const TOO_LARGE = `the answer has more than ${MAX_SET_BYTES} bytes`;

function headFault({ statusCode = 0, headers }: IncomingMessage): string | undefined {
  if (statusCode >= 300 && statusCode < 400) {
    return `the answer has status ${statusCode}, and redirects are not followed: configure the address they lead to`;
  }
  if (statusCode !== 200) return `the answer has status ${statusCode}`;
  if ((headers['content-encoding'] ?? 'identity') !== 'identity') return 'the answer is compressed';
  return Number(headers['content-length'] ?? 0) > MAX_SET_BYTES ? TOO_LARGE : undefined;
}

/** A key set could not be read, for this reason. */
export function unreadable(reason: string): WebhookStoreError {
  return new WebhookStoreError('keys_unavailable', reason);
}
