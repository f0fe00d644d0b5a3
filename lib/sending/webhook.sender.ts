import type { HttpService } from '@nestjs/axios';
import type { WebhookClock } from '../clock/webhook-clock.js';
import type { RequestTracing } from '../diagnostics/operation.js';
import { isWebhookError, WebhookStoreError, type WebhookError } from '../errors/webhook.error.js';
import type { OutgoingDelivery } from '../queue/webhook-delivery.js';
import { PublisherLog } from '../signing/publisher-log.js';
import { excerptOf } from './answer-excerpt.js';
import {
  attemptResult,
  isAcknowledged,
  isInconclusive,
  type Attempt,
  type NoAnswer,
  type ReceiverAnswer,
} from './attempt-result.js';
import {
  type ClientCertificate,
  credentialHeaders,
  credentialsConflict,
} from './endpoint-credentials.js';
import type { Endpoint } from './endpoint.js';
import type { TransportOptions } from './connections.js';
import { HttpTransport } from './http.transport.js';
import { CredentialFailure, OAuthTokens } from './oauth-tokens.js';
import {
  RequestComposer,
  wantedMethod,
  type ComposedRequest,
  type RequestContext,
} from './request.composer.js';
import { signingFailure } from './signing-failure.js';

/** Options of the {@link WebhookSender}. */
export interface SenderOptions extends TransportOptions {
  readonly clock: WebhookClock;
  readonly maxHeadBytes: number;
}

/** The requests of an attempt, and the answer that counts. */
interface Exchange {
  readonly requests: readonly ComposedRequest[];
  /** The method whose answer counts. */
  readonly method: 'HEAD' | 'POST';
  readonly answer: ReceiverAnswer | NoAnswer;
  /** Secret values in its headers. */
  readonly credentials: readonly string[];
}

type SendRequest = (
  request: ComposedRequest,
  certificate: ClientCertificate | undefined,
) => Promise<ReceiverAnswer | NoAnswer>;

/** What an attempt authenticates with besides the signature. */
interface AttemptCredentials {
  readonly headers: Readonly<Record<string, string>>;
  readonly certificate?: ClientCertificate | undefined;
  /** Absent if the endpoint needs none. */
  readonly accessToken?: string;
}

const UNAUTHORIZED = 401;

/** Makes one attempt: signs the request, sends it, and judges the answer. */
export class WebhookSender {
  readonly composer: RequestComposer;
  private readonly log = new PublisherLog();
  private readonly transport: HttpTransport;
  private readonly tokens: OAuthTokens;
  private readonly running = new Set<AbortController>();

  /** @param http - the application's; by default, one is created for the first attempt */
  constructor(
    private readonly options: SenderOptions,
    http: HttpService | undefined,
  ) {
    this.transport = new HttpTransport(options, http);
    this.tokens = new OAuthTokens(options);
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
    attempt: number,
    tracing?: RequestTracing,
  ): Promise<Attempt> {
    const { clock } = this.options;
    const startedAt = clock.now();
    const controller = new AbortController();
    const { signal } = controller;
    const cancel = clock.wakeAt(startedAt + endpoint.timeout, () => controller.abort('timeout'));
    this.running.add(controller);
    try {
      const context = { attempt, signal, trace: tracing?.trace };
      const exchange = await this.exchange(delivery, endpoint, context, async (request, tls) =>
        tracing === undefined
          ? this.transport.send(request, signal, tls)
          : tracing.send(async () => this.transport.send(request, signal, tls)),
      );
      const { requests, method, answer } = exchange;
      const now = clock.now();
      const receipt = requests.at(-1)?.receipt;
      const facts = { attempt, method, durationMs: Math.max(0, now - startedAt), receipt };
      const result = attemptResult(facts, answer, now);
      const { profile } = requests.at(-1) ?? {};
      return { result, at: startedAt, receipt, profile, answer: this.excerpt(endpoint, exchange) };
    } finally {
      cancel();
      this.running.delete(controller);
    }
  }

  /** Aborts running attempts and closes the connections. */
  close(): void {
    for (const controller of this.running) controller.abort('aborted');
    this.transport.close();
    this.tokens.close();
  }

  private async exchange(
    delivery: OutgoingDelivery,
    endpoint: Endpoint,
    context: RequestContext & { readonly signal: AbortSignal },
    send: SendRequest,
  ): Promise<Exchange> {
    const requests: ComposedRequest[] = [];
    const credentials: string[] = [];
    let refusedToken: string | undefined;
    const request = async (
      compose: (context: RequestContext) => Promise<ComposedRequest>,
    ): Promise<ReceiverAnswer | NoAnswer> => {
      const own = await this.credentialsOf(delivery, endpoint, context.signal, refusedToken);
      credentials.push(...Object.values(own.headers));
      const composed = await compose({ ...context, credentials: own.headers });
      this.log.recovered('signing');
      requests.push(composed);
      const answer = await send(composed, own.certificate);
      const isStale = answer.statusCode === UNAUTHORIZED && refusedToken === undefined;
      if (!isStale || own.accessToken === undefined) return answer;
      // Once in an attempt: the answer may be about something else than the access token.
      refusedToken = own.accessToken;
      return request(compose);
    };
    try {
      this.options.egress.checkUrl(endpoint.url);
      const answer = await request(async (one) => this.composer.compose(delivery, endpoint, one));
      const { method } = requests.at(-1)!;
      const mayFallBack = method === 'HEAD' && wantedMethod(delivery, endpoint) === 'auto';
      if (isAcknowledged(method, answer) || !mayFallBack || !isInconclusive(answer)) {
        return { requests, method, answer, credentials };
      }
      const second = await request(async (one) =>
        this.composer.composePost(delivery, endpoint, one),
      );
      // Only a successful POST shows that HEAD was the problem: during a receiver's deployment both get 404, and
      // the next attempt should start with HEAD again.
      if (isAcknowledged('POST', second)) endpoint.state.needsPost = true;
      return { requests, method: 'POST', answer: second, credentials };
    } catch (error) {
      if (error instanceof CredentialFailure) {
        this.warnUnauthorised(endpoint, error);
        return { requests, method: 'POST', answer: { reason: error.reason }, credentials };
      }
      // An unexpected error is not an outcome; the queue runs the delivery again.
      if (!isWebhookError(error)) throw error;
      const unsigned = signingFailure(error);
      if (unsigned !== undefined && unsigned !== 'aborted') this.warnUnsigned(error);
      const rejected = error.code === 'destination_blocked' ? error.code : 'invalid_request';
      // The method is unknown before the request is signed, and POST after a HEAD.
      return { requests, method: 'POST', answer: { reason: unsigned ?? rejected }, credentials };
    }
  }

  /**
   * @param refused - an access token that the endpoint has refused
   * @throws {@link CredentialFailure}
   * @throws {@link WebhookStoreError} `sealed_secret_unreadable`, `endpoint_unreadable`
   */
  private async credentialsOf(
    { profile }: OutgoingDelivery,
    endpoint: Endpoint,
    signal: AbortSignal,
    refused: string | undefined,
  ): Promise<AttemptCredentials> {
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
    const accessToken = oauth2 && (await this.tokens.get(oauth2, signal, refused));
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

  /** Logs once until signing succeeds again: a failing key service affects every delivery. */
  private warnUnsigned({ code, message }: WebhookError): void {
    this.log.once(
      'warn',
      'signing',
      () => `Deliveries cannot be signed and are retried on schedule (${code}): ${message}`,
      code,
    );
  }

  /** The beginning of the answer, which is stored with the attempt. */
  private excerpt(
    { url, headers }: Endpoint,
    { requests, answer, credentials: sent }: Exchange,
  ): string | undefined {
    if (answer.statusCode === undefined || answer.body === undefined) return undefined;
    const credentials = sent.flatMap((value) => [value, ...value.split(' ').slice(1)]);
    const tokens = requests.map(({ token }) => token);
    const signatures = requests.flatMap(({ headers: { 'webhook-signature': value = '' } }) =>
      value.split(' '),
    );
    return excerptOf(answer.body, { tokens, signatures, url, headers, credentials });
  }
}
