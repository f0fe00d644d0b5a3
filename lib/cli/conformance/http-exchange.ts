import http from 'node:http';
import https from 'node:https';
import { text } from 'node:stream/consumers';
import { requireFinalAnswer } from '../../egress/guarded-agent.js';
import type { ProbeAnswer, ProbeOutcome, ProbeRequest } from './probe.interface.js';

/** The receiver under test. */
export interface ExchangeTarget {
  readonly url: URL;
  /** Milliseconds for a connection, and for each answer. */
  readonly timeout: number;
  /** PEM of the certificate authority to trust instead of Node's own. */
  readonly ca?: string | undefined;
}

/**
 * Sends requests one by one and reads their answers. A connection is used again only for a request that asks for it.
 *
 * @throws the socket's error, if no connection can be made
 */
export async function exchange(
  target: ExchangeTarget,
  requests: readonly ProbeRequest[],
): Promise<ProbeOutcome[]> {
  const outcomes: ProbeOutcome[] = [];
  let agent = agentOf(target);
  try {
    for (const request of requests) {
      if (request.sameConnection !== true) {
        agent.destroy();
        agent = agentOf(target);
      }
      outcomes.push(await send(target, agent, request));
    }
  } finally {
    agent.destroy();
  }
  return outcomes;
}

function agentOf({ url, ca }: ExchangeTarget): http.Agent {
  const options = { keepAlive: true, maxSockets: 1 };
  return url.protocol === 'https:' ? new https.Agent({ ...options, ca }) : new http.Agent(options);
}

async function send(
  { url, timeout }: ExchangeTarget,
  agent: http.Agent,
  probe: ProbeRequest,
): Promise<ProbeOutcome> {
  const { method, body, sameConnection = false } = probe;
  const { request: open } = url.protocol === 'https:' ? https : http;
  const request = open(url, { method, agent, headers: headersOf(probe) });
  requireFinalAnswer(request);
  let outcome: 'closed' | 'timeout' | undefined;
  const end = (reason: 'closed' | 'timeout', error?: Error): void => {
    outcome ??= reason;
    request.destroy(error);
  };
  let timer: NodeJS.Timeout | undefined;
  const waitFor = (onTime: () => void): void => {
    clearTimeout(timer);
    timer = setTimeout(onTime, timeout);
  };
  let isConnected = false;
  const onConnect = (): void => {
    isConnected = true;
    waitFor(() => end('timeout'));
  };
  waitFor(() => request.destroy(new Error('no connection could be made in time')));
  request.once('socket', (socket) => {
    if (request.reusedSocket) return onConnect();
    if (sameConnection) return end('closed');
    socket.once(url.protocol === 'https:' ? 'secureConnect' : 'connect', onConnect);
  });
  try {
    const response = await new Promise<http.IncomingMessage>((resolve, reject) => {
      request.on('response', resolve).on('error', reject).end(body);
    });
    return { ...answerHead(response), body: await text(response) };
  } catch (error) {
    if (outcome === undefined && !isConnected) throw error;
    return outcome ?? 'closed';
  } finally {
    clearTimeout(timer);
  }
}

/** The head of a request may be one that HTTP does not allow, such as two credentials, or the length of a body that is not sent. */
function headersOf({
  authorization,
  headers,
  body,
  contentLength = body?.length ?? 0,
}: ProbeRequest): http.OutgoingHttpHeaders {
  return {
    'User-Agent': 'nestjs-webhook-token-conformance',
    ...(authorization.length > 0 && { Authorization: [...authorization] }),
    ...Object.fromEntries(headers),
    ...(contentLength !== null && { 'Content-Length': contentLength }),
  };
}

function answerHead({
  statusCode = 0,
  headersDistinct,
}: http.IncomingMessage): Omit<ProbeAnswer, 'body'> {
  const headers = Object.entries(headersDistinct).map(
    ([name, values = []]) => [name, values.join(', ')] as const,
  );
  return { status: statusCode, headers: new Map(headers) };
}
