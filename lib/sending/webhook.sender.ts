// Not the global one, which fake timers of Jest and Vitest replace.
import { setImmediate } from 'node:timers';
import type { HttpService } from '@nestjs/axios';
import type { CancelWake, WebhookClock } from '../clock/webhook-clock.js';
import type { RequestTracing } from '../diagnostics/operation.js';
import { isWebhookError, WebhookStoreError, type WebhookError } from '../errors/webhook.error.js';
import type { FailureReason, OutgoingDelivery, SignedFacts } from '../queue/webhook-delivery.js';
import { PublisherLog } from '../signing/publisher-log.js';
import { readTokenAnatomy } from '../token/webhook-receipt.js';
import { excerptOf } from './answer-excerpt.js';
import {
  attemptResult,
  isAcknowledged,
  isInconclusive,
  type Attempt,
  type NoAnswer,
  type ReceiverAnswer,
  signingFailure,
} from './attempt-result.js';
import {
  type ClientCertificate,
  credentialHeaders,
  credentialsConflict,
} from './endpoint-credentials.js';
import type { Endpoint } from './endpoint.js';
import type { TransportOptions } from './connections.js';
import { HttpTransport } from './http.transport.js';
import { CredentialFailure, type OAuthTokens } from './oauth-tokens.js';
import {
  RequestComposer,
  wantedMethod,
  type ComposedRequest,
  type RequestContext,
} from './request.composer.js';

export interface SenderOptions extends TransportOptions {
  readonly clock: WebhookClock;
  readonly maxHeadBytes: number;
}

interface Exchange {
  readonly delivery: OutgoingDelivery;
  readonly endpoint: Endpoint;
  readonly context: RequestContext & { readonly signal: AbortSignal };
  readonly tracing: RequestTracing | undefined;
  readonly requests: ComposedRequest[];
  /** Secret values in the headers of the requests. */
  readonly secrets: string[];
  refusedToken?: string;
}

/** What an attempt authenticates with besides the signature. */
interface AttemptCredentials {
  readonly headers: Readonly<Record<string, string>>;
  readonly certificate?: ClientCertificate | undefined;
  /** Absent if the endpoint needs none. */
  readonly accessToken?: string;
}

const UNAUTHORIZED = 401;

/** Errors of what is stored of one endpoint. */
const OF_ENDPOINT: ReadonlySet<string> = new Set([
  'sealed_secret_unreadable',
  'endpoint_unreadable',
]);

/** Makes one attempt: signs the request, sends it, and judges the answer. */
export class WebhookSender {
  readonly composer: RequestComposer;
  private readonly log = new PublisherLog();
  private readonly transport: HttpTransport;
  private readonly running = new Set<AbortController>();
  /** The signer that has failed last. */
  private failedSigner: Endpoint['signer'] | undefined;

  /** @param http - the application's; by default, one is created for the first attempt */
  constructor(
    private readonly options: SenderOptions,
    http: HttpService | undefined,
    private readonly tokens: OAuthTokens,
  ) {
    this.transport = new HttpTransport(options, http);
    this.composer = new RequestComposer(options.clock, options.maxHeadBytes, () =>
      this.transport.inheritedHeaders(),
    );
  }

  /** Whether the application has set its own axios adapter, whose connections the egress guard cannot check. */
  get usesForeignAdapter(): boolean {
    return this.transport.usesForeignAdapter;
  }

  /** Attempts a delivery once; an inconclusive HEAD is followed by a POST within the same attempt. */
  async attempt(
    delivery: OutgoingDelivery,
    endpoint: Endpoint,
    number: number,
    tracing?: RequestTracing,
  ): Promise<Attempt> {
    const { clock } = this.options;
    const controller = new AbortController();
    const { signal } = controller;
    let cancel: CancelWake | undefined;
    this.running.add(controller);
    try {
      // Ahead of the timer: a short timeout would end the first attempt before its request.
      await this.transport.load();
      const startedAt = clock.now();
      // As in inTime(): an answer that has arrived goes first.
      const expire = (): void => void setImmediate(() => controller.abort('timeout'));
      cancel = clock.wakeAt(startedAt + endpoint.timeout, expire);
      const exchange: Exchange = {
        delivery,
        endpoint,
        context: { attempt: number, signal, trace: tracing?.trace },
        tracing,
        requests: [],
        secrets: [],
      };
      const { method, answer } = await this.exchange(exchange);
      const now = clock.now();
      if (answer.statusCode === undefined) this.warnOfOpenFiles(answer.reason);
      const { receipt, profile, token } = exchange.requests.at(-1) ?? {};
      const durationMs = Math.max(0, now - startedAt);
      const facts = { attempt: number, method, durationMs };
      const result = attemptResult(facts, answer, now);
      const signed = token ? signedFacts(token) : undefined;
      const excerpt = excerptOfAnswer(answer, exchange);
      return { result, at: startedAt, receipt, signed, profile, answer: excerpt };
    } finally {
      cancel?.();
      this.running.delete(controller);
    }
  }

  /** Aborts running attempts and closes the connections. */
  close(): void {
    for (const controller of this.running) controller.abort('aborted');
    this.transport.close();
    this.tokens.close();
  }

  /** Makes the request, repeats it as POST if HEAD was the problem, and returns the answer that counts. */
  private async exchange(
    exchange: Exchange,
  ): Promise<{ readonly method: 'HEAD' | 'POST'; readonly answer: ReceiverAnswer | NoAnswer }> {
    const { composer } = this;
    const { delivery, endpoint } = exchange;
    try {
      this.options.egress.checkUrl(endpoint.url);
      const answer = await this.request(exchange, async (context) =>
        composer.compose(delivery, endpoint, context),
      );
      const { method } = exchange.requests.at(-1)!;
      const mayFallBack = method === 'HEAD' && wantedMethod(delivery, endpoint) === 'auto';
      if (isAcknowledged(method, answer) || !mayFallBack || !isInconclusive(answer)) {
        return { method, answer };
      }
      const second = await this.request(exchange, async (context) =>
        composer.composePost(delivery, endpoint, context),
      );
      // Only a successful POST shows that HEAD was the problem: during a receiver's deployment both get 404, and
      // the next attempt should start with HEAD again.
      if (isAcknowledged('POST', second)) endpoint.state.needsPost = true;
      return { method: 'POST', answer: second };
    } catch (error) {
      // Before a request is signed, its method is unknown.
      const method = exchange.requests.at(-1)?.method ?? 'POST';
      return { method, answer: { reason: this.failureOf(error, endpoint) } };
    }
  }

  /** Makes a request, and a second one if the endpoint refuses its access token, which may have been revoked. */
  private async request(
    exchange: Exchange,
    compose: (context: RequestContext) => Promise<ComposedRequest>,
  ): Promise<ReceiverAnswer | NoAnswer> {
    const { context, endpoint, tracing } = exchange;
    for (;;) {
      const own = await this.credentialsOf(exchange);
      exchange.secrets.push(...Object.values(own.headers));
      const composed = await compose({ credentials: own.headers, ...context });
      this.signed(endpoint);
      exchange.requests.push(composed);
      const send = () => this.transport.send(composed, context.signal, own.certificate);
      const answer = await (tracing === undefined ? send() : tracing.send(send));
      const isStale = answer.statusCode === UNAUTHORIZED && exchange.refusedToken === undefined;
      if (!isStale || own.accessToken === undefined) return answer;
      // Only once in an attempt: the endpoint may have another reason to refuse it.
      exchange.refusedToken = own.accessToken;
    }
  }

  /**
   * The reason for which a request could not be made.
   *
   * @throws an unexpected error, which is not an outcome: the queue runs the delivery again
   */
  private failureOf(error: unknown, endpoint: Endpoint): FailureReason {
    if (error instanceof CredentialFailure) {
      this.warnUnauthorised(endpoint, error);
      return error.reason;
    }
    if (!isWebhookError(error)) throw error;
    const unsigned = signingFailure(error);
    if (unsigned !== undefined && unsigned !== 'aborted') this.warnUnsigned(endpoint, error);
    const rejected = error.code === 'destination_blocked' ? error.code : 'invalid_request';
    return unsigned ?? rejected;
  }

  /**
   * @throws {@link CredentialFailure}
   * @throws {@link WebhookStoreError} `sealed_secret_unreadable`, `endpoint_unreadable`
   */
  private async credentialsOf({
    delivery: { profile },
    endpoint,
    context: { signal },
    refusedToken,
  }: Exchange): Promise<AttemptCredentials> {
    const credentials = endpoint.credentials?.();
    if (credentials === undefined) return { headers: {} };
    const conflict = credentialsConflict(credentials, profile ?? endpoint.profile);
    if (conflict !== undefined) {
      throw new WebhookStoreError(
        'endpoint_unreadable',
        `The credentials of ${endpoint.label} cannot be sent: this ${conflict}.`,
      );
    }
    const { certificate, oauth2 } = credentials;
    const accessToken = oauth2 && (await this.tokens.get(oauth2, signal, refusedToken));
    this.log.recovered(`credentials of ${endpoint.label}`);
    const headers = credentialHeaders(credentials, accessToken);
    return { headers, certificate, ...(accessToken !== undefined && { accessToken }) };
  }

  /** Logs once for an endpoint until one of its attempts is authorised again. */
  private warnUnauthorised({ label }: Endpoint, { reason, message }: CredentialFailure): void {
    if (reason === 'aborted') return;
    this.log.once(
      'warn',
      `credentials of ${label}`,
      () => `${label} gets no deliveries: ${message}`,
      message,
    );
  }

  /** Logs once: attempts on open connections succeed meanwhile, so a recovery cannot be seen. */
  private warnOfOpenFiles(reason: FailureReason): void {
    if (reason !== 'too_many_open_files') return;
    const warning =
      'No connection can be opened: this process or its system has reached its limit of open files. Deliveries are retried on schedule (too_many_open_files). Raise the limit, such as "ulimit -n", or "LimitNOFILE" of systemd.';
    this.log.once('warn', reason, () => warning);
  }

  /** Logs once until signing succeeds again, for all endpoints together if a key service fails, which affects all of them. */
  private warnUnsigned({ label, signer }: Endpoint, { code, message }: WebhookError): void {
    const isOfEndpoint = OF_ENDPOINT.has(code);
    if (!isOfEndpoint) this.failedSigner = signer;
    this.log.once(
      'warn',
      isOfEndpoint ? `signing for ${label}` : 'signing',
      () => `Deliveries cannot be signed and are retried on schedule (${code}): ${message}`,
      code,
    );
  }

  private signed({ label, signer }: Endpoint): void {
    this.log.recovered(`signing for ${label}`);
    // An endpoint with keys of its own does not show that the key service works again.
    if (signer === this.failedSigner) this.log.recovered('signing');
  }
}

/** Apart from the receipt, which takes three times as long. */
function signedFacts(token: string): SignedFacts {
  const { header = {}, claims = {} } = readTokenAnatomy(token);
  const { jti, iat, exp } = claims;
  const facts = [jti, iat, exp, header['alg']];
  return (header['kid'] === undefined
    ? facts
    : [...facts, header['kid']]) as unknown as SignedFacts;
}

/** Of a value of a header; more would make an answer that repeats them expensive to search. */
const MOST_PARTS = 10;

/** The beginning of the answer, which is stored with the attempt. */
function excerptOfAnswer(
  answer: ReceiverAnswer | NoAnswer,
  { endpoint: { url, headers }, requests, secrets }: Exchange,
): string | undefined {
  if (answer.statusCode === undefined || answer.body === undefined) return undefined;
  // A receiver may repeat a value without its scheme, such as Basic.
  const credentials = secrets.flatMap((value) => [value, ...value.split(' ', MOST_PARTS).slice(1)]);
  const tokens = requests.map(({ token }) => token);
  const signatures = requests.flatMap(({ headers: { 'webhook-signature': value = '' } }) =>
    value.split(' '),
  );
  return excerptOf(answer.body, { tokens, signatures, url, headers, credentials });
}
