import http, { type IncomingMessage } from 'node:http';
import https from 'node:https';
import { MINUTE, SECOND } from '../clock/duration.js';
import { untilAborted, type WebhookClock } from '../clock/webhook-clock.js';
import { createGuardedAgents, requireFinalAnswer } from '../egress/guarded-agent.js';
import type { FailureReason } from '../queue/webhook-delivery.js';
import { ByteChunks } from '../token/payload.js';
import type { TransportOptions } from './connections.js';
import type { OAuth2ClientCredentials } from './endpoint-credentials.js';
import { transportFailure } from './attempt-result.js';

/** For one request, whichever delivery needs its token. */
const TIMEOUT = 15 * SECOND;
const MAX_ANSWER_BYTES = 65_536;
/** For a token whose answer does not say how long it is valid. */
const DEFAULT_LIFETIME = 5 * MINUTE;
/** Tokens are renewed this long before they expire, and short-lived ones after four fifths of their life. */
const MARGIN = MINUTE;

/** Errors that a token endpoint may report. Others are not logged, because they may be anything. */
const KNOWN_ERRORS = new Set([
  'invalid_request',
  'invalid_client',
  'invalid_grant',
  'unauthorized_client',
  'unsupported_grant_type',
  'invalid_scope',
  'temporarily_unavailable',
  'server_error',
]);

/** No access token was issued. The message is safe to log. */
export class CredentialFailure extends Error {
  override readonly name = 'CredentialFailure';

  constructor(
    readonly reason: FailureReason,
    message: string,
  ) {
    super(message);
  }
}

interface AccessToken {
  readonly value: string;
  /** From when a new one is requested, in epoch milliseconds. */
  readonly renewAt: number;
}

/** The access token of one endpoint's credentials. */
interface TokenState {
  current?: AccessToken;
  fetching?: Promise<AccessToken> | undefined;
}

interface OAuthTokensOptions extends TransportOptions {
  readonly clock: WebhookClock;
}

/**
 * Requests access tokens by the client credentials grant, and caches them until shortly before they expire.
 *
 * The request is made here and not with HttpService, whose interceptors may log it.
 *
 * @see RFC 6749, section 4.4
 */
export class OAuthTokens {
  private readonly states = new WeakMap<OAuth2ClientCredentials, TokenState>();
  private readonly agents;
  private readonly running = new Set<AbortController>();

  constructor(private readonly options: OAuthTokensOptions) {
    // Without the client certificate of the publisher, which is for endpoints.
    const tls = { ca: options.tls?.ca };
    this.agents = createGuardedAgents(options.egress, {
      tls,
      proxy: options.proxy,
      keepAlive: false,
    });
  }

  /**
   * Returns a valid token. Concurrent callers share one request for it.
   *
   * @param credentials - the same object for as long as they are the same
   * @param signal - ends the wait; its reason is `'timeout'` or `'aborted'`
   * @param refused - a token that the endpoint has refused, and that must not be returned again
   * @throws {@link CredentialFailure}
   */
  async get(
    credentials: OAuth2ClientCredentials,
    signal: AbortSignal,
    refused?: string,
  ): Promise<string> {
    let state = this.states.get(credentials);
    if (state === undefined) this.states.set(credentials, (state = {}));
    const { current } = state;
    const isValid = current !== undefined && this.options.clock.now() < current.renewAt;
    if (isValid && current.value !== refused) return current.value;
    if (signal.aborted) throw ended(signal);
    state.fetching ??= this.renew(credentials, state);
    const token = await untilAborted(state.fetching, signal, () => ended(signal));
    return token.value;
  }

  /** Aborts requests and closes the connections. */
  close(): void {
    for (const controller of this.running) controller.abort('aborted');
    this.agents.destroy();
  }

  private async renew(
    credentials: OAuth2ClientCredentials,
    state: TokenState,
  ): Promise<AccessToken> {
    try {
      const token = await this.fetch(credentials);
      state.current = token;
      return token;
    } finally {
      state.fetching = undefined;
    }
  }

  private async fetch(credentials: OAuth2ClientCredentials): Promise<AccessToken> {
    const { clock, egress } = this.options;
    const startedAt = clock.now();
    // Not AbortSignal.any(): a signal that outlives the request would keep an entry for it.
    const controller = new AbortController();
    const { signal } = controller;
    const cancel = clock.wakeAt(startedAt + TIMEOUT, () => controller.abort('timeout'));
    this.running.add(controller);
    try {
      const url = egress.checkUrl(credentials.tokenUrl);
      const request = this.request(url, credentials, signal);
      // Node fails a request that waits for a connection only once it has one, and a proxy may hold that back.
      return readToken(await untilAborted(request, signal, () => ended(signal)), startedAt);
    } catch (error) {
      if (error instanceof CredentialFailure) throw error;
      throw signal.aborted ? ended(signal) : unavailable(error);
    } finally {
      cancel();
      this.running.delete(controller);
    }
  }

  private async request(
    url: URL,
    credentials: OAuth2ClientCredentials,
    signal: AbortSignal,
  ): Promise<unknown> {
    const isSecure = url.protocol === 'https:';
    const { body, headers } = tokenRequest(credentials);
    return new Promise((resolve, reject) => {
      const request = (isSecure ? https : http).request(url, {
        method: 'POST',
        agent: isSecure ? this.agents.httpsAgent : this.agents.httpAgent,
        headers: {
          ...headers,
          Accept: 'application/json',
          'Accept-Encoding': 'identity',
          'Content-Type': 'application/x-www-form-urlencoded',
          'Content-Length': Buffer.byteLength(body),
          'User-Agent': 'nestjs-webhook-token',
        },
        signal,
      });
      requireFinalAnswer(request);
      request.once('error', reject);
      request.once('response', (answer) => {
        readAnswer(answer).then(resolve, (error: unknown) => {
          request.destroy();
          reject(error);
        });
      });
      request.end(body);
    });
  }
}

/** @see RFC 6749, section 2.3.1 */
function tokenRequest(credentials: OAuth2ClientCredentials): {
  readonly body: string;
  readonly headers: Readonly<Record<string, string>>;
} {
  const { clientId, clientSecret, scope, parameters, clientAuthentication } = credentials;
  const form = new URLSearchParams({ ...parameters, grant_type: 'client_credentials' });
  if (scope !== undefined) form.set('scope', scope);
  if (clientAuthentication === 'body') {
    form.set('client_id', clientId);
    form.set('client_secret', clientSecret);
    return { body: form.toString(), headers: {} };
  }
  const basic = Buffer.from(`${encoded(clientId)}:${encoded(clientSecret)}`).toString('base64');
  return { body: form.toString(), headers: { Authorization: `Basic ${basic}` } };
}

/** As a value of application/x-www-form-urlencoded. */
function encoded(value: string): string {
  return new URLSearchParams({ v: value }).toString().slice(2);
}

async function readAnswer(answer: IncomingMessage): Promise<unknown> {
  const { statusCode = 0 } = answer;
  const chunks = new ByteChunks();
  for await (const chunk of answer as AsyncIterable<Buffer>) {
    chunks.add(chunk);
    if (chunks.length > MAX_ANSWER_BYTES) {
      throw failure(`answered with more than ${MAX_ANSWER_BYTES} bytes`);
    }
  }
  const document = parsed(chunks.bytes());
  if (statusCode === 200) return document;
  if (statusCode >= 300 && statusCode < 400) {
    throw failure(
      `answered with status ${statusCode}; redirects are not followed, so set its final URL`,
    );
  }
  const { error } = (document ?? {}) as { error?: unknown };
  const code = KNOWN_ERRORS.has(error as string) ? ` and the error ${error as string}` : '';
  throw failure(`answered with status ${statusCode}${code}`);
}

function parsed(bytes: Buffer): unknown {
  try {
    return JSON.parse(bytes.toString());
  } catch {
    return undefined;
  }
}

/** @see RFC 6749, section 5.1 */
function readToken(document: unknown, startedAt: number): AccessToken {
  const { access_token, token_type, expires_in } = (document ?? {}) as Record<string, unknown>;
  const isToken = typeof access_token === 'string' && /^[\x21-\x7e]{1,16384}$/.test(access_token);
  if (!isToken) throw failure('answered without a usable access_token');
  if (token_type === undefined) throw failure('answered without a token_type');
  if (typeof token_type !== 'string' || token_type.toLowerCase() !== 'bearer') {
    throw failure('issued a token of another type than Bearer');
  }
  const seconds = Number(expires_in ?? DEFAULT_LIFETIME / SECOND);
  const lifetime = seconds > 0 ? seconds * SECOND : DEFAULT_LIFETIME;
  return { value: access_token, renewAt: startedAt + lifetime - Math.min(MARGIN, lifetime / 5) };
}

function failure(what: string): CredentialFailure {
  return new CredentialFailure('credentials_unavailable', `the token endpoint ${what}`);
}

/** A shutdown says nothing about the token endpoint. */
function ended({ reason }: AbortSignal): CredentialFailure {
  return reason === 'aborted'
    ? new CredentialFailure(reason, 'the application shut down')
    : failure('did not answer in time');
}

/** Failures ahead of the request, which say nothing about the token endpoint. */
const NOT_CALLED: Partial<Record<FailureReason, string>> = {
  proxy_failed: 'the egress proxy failed',
  too_many_open_files: 'this process has too many open files',
};

/** The error itself is dropped: it may have the request, and so the client's secret. */
function unavailable(error: unknown): CredentialFailure {
  const reason = transportFailure(error);
  const how = NOT_CALLED[reason];
  return how === undefined
    ? failure(`did not answer (${reason})`)
    : new CredentialFailure(reason, `the token endpoint was not called: ${how}`);
}
