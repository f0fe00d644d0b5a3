import http from 'node:http';
import https from 'node:https';
import {
  blockedDestination,
  EgressPolicy,
  isLoopback,
  LOOPBACK_NETWORKS,
} from '../egress/egress-policy.js';
import {
  CONNECTION_HEADERS,
  createGuardedAgents,
  requireFinalAnswer,
} from '../egress/guarded-agent.js';
import { ByteChunks } from '../token/payload.js';
import { readTimeout, UsageError } from './arguments.js';
import type { Arguments } from './command.interface.js';

/** Bytes of an answer that are read. */
const MAX_ANSWER_BYTES = 65_536;

export const TARGET_OPTIONS = {
  timeout: { type: 'string' },
  'allow-http': { type: 'boolean' },
  'allow-private': { type: 'boolean' },
} as const;

export const TARGET_HELP = `  --timeout <duration>   for the answer; default 15s
  --allow-http           allow http:// to hosts other than this machine
  --allow-private        allow addresses of private networks; this machine is always allowed`;

export interface CallTarget {
  readonly url: URL;
  /** Milliseconds. */
  readonly timeout: number;
  readonly allowPrivate: boolean;
}

export interface CallRequest {
  readonly method: string;
  readonly headers: Readonly<Record<string, string | readonly string[]>>;
  readonly body: Buffer | undefined;
}

export interface CallAnswer {
  readonly status: number;
  readonly headers: http.IncomingHttpHeaders;
  readonly body: Buffer;
  readonly durationMs: number;
}

/** No answer arrived; the message says why, and contains nothing that was sent. */
export class UnreachableError extends Error {}

/** @throws {@link UsageError} */
export function readTarget(
  address: string | undefined,
  values: Arguments<typeof TARGET_OPTIONS>['values'],
): CallTarget {
  const url = address !== undefined && URL.canParse(address) ? new URL(address) : undefined;
  const isUsable = url !== undefined && ['http:', 'https:'].includes(url.protocol);
  if (!isUsable || url.username !== '' || url.password !== '') {
    throw new UsageError(
      'Pass the URL of the receiver, such as https://crm.example/webhooks, without a user or password.',
    );
  }
  if (url.protocol === 'http:' && !isLoopback(url.hostname) && values['allow-http'] !== true) {
    throw new UsageError(
      'Anyone on the network path can read tokens sent over http://: use https://, or pass --allow-http.',
    );
  }
  const timeout = readTimeout(values.timeout ?? '15s');
  return { url, timeout, allowPrivate: values['allow-private'] ?? false };
}

/**
 * Sends one request through the egress guard, without connection headers; redirects are not followed.
 *
 * @param interrupted - aborts the request
 * @throws {@link UnreachableError}, or {@link UsageError} for a request that HTTP does not allow
 */
export async function call(
  { url, timeout, allowPrivate }: CallTarget,
  { method, headers, body }: CallRequest,
  interrupted?: AbortSignal,
): Promise<CallAnswer> {
  const policy = new EgressPolicy({
    allowHttp: true,
    allowPrivateNetworks: allowPrivate,
    allowedAddresses: isLoopback(url.hostname) ? LOOPBACK_NETWORKS : [],
  });
  const agents = createGuardedAgents(policy);
  const started = Date.now();
  // Read again below: Node 20 collects a signal that only AbortSignal.any() has, and then its timer never fires.
  const limit = AbortSignal.timeout(timeout);
  try {
    const secure = url.protocol === 'https:';
    const request = open(secure ? https : http, url, {
      method,
      headers: {
        ...endToEnd(headers),
        // Answers are shown and passed back as they are.
        'accept-encoding': 'identity',
        'user-agent': 'nestjs-webhook-token-cli',
      },
      agent: secure ? agents.httpsAgent : agents.httpAgent,
      signal: AbortSignal.any([limit, ...(interrupted ? [interrupted] : [])]),
    });
    requireFinalAnswer(request);
    const response = await new Promise<http.IncomingMessage>((resolve, reject) => {
      request.on('response', resolve).on('error', reject).end(body);
    });
    const chunks = new ByteChunks();
    for await (const chunk of response as AsyncIterable<Buffer>) {
      chunks.add(chunk);
      if (chunks.length >= MAX_ANSWER_BYTES) break;
    }
    return {
      status: response.statusCode!,
      headers: response.headers,
      body: chunks.bytes().subarray(0, MAX_ANSWER_BYTES),
      durationMs: Date.now() - started,
    };
  } catch (error) {
    if (error instanceof UsageError) throw error;
    if (interrupted?.aborted === true) throw new UnreachableError('The command was interrupted.');
    throw new UnreachableError(limit.aborted ? 'No answer arrived in time.' : reasonOf(error));
  } finally {
    agents.destroy();
  }
}

function endToEnd(headers: CallRequest['headers']): CallRequest['headers'] {
  return Object.fromEntries(
    Object.entries(headers).filter(([name]) => !CONNECTION_HEADERS.has(name.toLowerCase())),
  );
}

function open(
  { request }: Pick<typeof http, 'request'>,
  url: URL,
  options: http.RequestOptions,
): http.ClientRequest {
  try {
    return request(url, options);
  } catch (error) {
    throw new UsageError(`The request cannot be sent: ${(error as Error).message}.`);
  }
}

function reasonOf(error: unknown): string {
  const blocked = blockedDestination(error);
  if (blocked !== undefined)
    return `${blocked.message} Pass --allow-private to send to a private network.`;
  const { code, message } = error as NodeJS.ErrnoException;
  return code === undefined ? message : `${code}: ${message}`;
}
