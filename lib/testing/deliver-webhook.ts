import type { IncomingMessage } from 'node:http';
import { duplexPair } from 'node:stream';
import type { INestApplication } from '@nestjs/common';
import { ApplicationConfig } from '@nestjs/core';
import { HandlerFailure } from '../receiver/error-answers.js';
import { mountPaths } from '../receiver/mount/mounted-paths.js';
import type { WebhookEvent } from '../receiver/webhook-event.js';
import type { ResolvedReceiver } from '../receiver/receiver-options.resolver.js';
import { WebhookVerifier } from '../receiver/webhook.verifier.js';
import { type AnsweredRequest, ReceiverReporter } from '../receiver/receiver.reporter.js';
import { nodeRequest } from '../receiver/node-http.js';
import type { WebhookClock } from '../clock/webhook-clock.js';
import { readOptions } from '../options/read-options.js';
import {
  func,
  instance,
  object,
  optional,
  type Read,
  required,
  text,
  unchecked,
} from '../options/rules.js';
import type { WebhookSender } from '../senders/sender.js';
import type { WebhookEventData, WebhookEventName } from '../token/webhook-event-map.js';
import {
  connectInMemory,
  initialise,
  type InMemoryAnswer,
  requestOver,
} from './in-memory-request.js';
import {
  SIGN_WEBHOOK,
  type SignedTestWebhook,
  signRequest,
  type SignWebhookOptions,
} from './sign-webhook.js';

/** The sender's key, and where and how the request is sent. */
export interface DeliverWebhookOptions extends Omit<SignWebhookOptions, 'issuer'> {
  /** The issuer that signs a token; required without `sender`. */
  readonly issuer?: string | undefined;
  /**
   * Signs the request as this sender, such as `stripe({ secret })`, instead of with a token. Of the options that describe the
   * signature, only `id`, `clock` and `now` apply.
   */
  readonly sender?: WebhookSender | undefined;
  /** Name of the receiver; default: the only one, or `'default'`. */
  readonly receiver?: string | undefined;
  /** The path, for a route with `@WebhookRoute()`; default: where the receiver is mounted, prefix and version included. */
  readonly path?: string | undefined;
  /** Changes the signed request before it is sent: edit it, or return another one. */
  readonly tamper?: ((request: SignedTestWebhook) => SignedTestWebhook | void) | undefined;
}

type Tamper = NonNullable<DeliverWebhookOptions['tamper']>;

/** The rules of {@link DeliverWebhookOptions}, for the options that extend them. */
export const DELIVER_WEBHOOK = {
  ...SIGN_WEBHOOK,
  issuer: unchecked<string | undefined>(),
  sender: optional(instance<WebhookSender>("a sender of 'nestjs-webhook-token/senders'", 'sign')),
  receiver: optional(text()),
  path: optional(text()),
  tamper: optional(func<Tamper>('(request) => request')),
};

const OPTIONS = object<DeliverWebhookOptions>()(DELIVER_WEBHOOK, {
  across({ issuer, sender }, at) {
    if (sender === undefined) required(unchecked<string>())(issuer, at, 'issuer');
  },
});

/** How an application answered a webhook, and what its handlers did. */
export interface DeliveredWebhook extends InMemoryAnswer {
  /**
   * - `handled`: every handler succeeded
   * - `queued`: its handlers run later; see `flushDeliveries`
   * - `duplicate`: it was handled before
   * - `unhandled`: it was acknowledged, and no handler matches it
   * - `failed`: it was verified, and then a handler failed, its data was invalid, a guard refused it, no handler matched it
   *   (`unhandledEvent: 'reject'`), or it could not be recorded
   * - `refused`: it was not verified
   */
  readonly outcome: 'handled' | 'queued' | 'duplicate' | 'unhandled' | 'failed' | 'refused';
  /** The event, if it was verified and is no duplicate. */
  readonly event?: WebhookEvent | undefined;
  /** What the handler threw, or why the request was refused. */
  readonly error?: unknown;
}

/**
 * Signs an event as its sender would, and delivers it to an application, which need not listen: the request goes through the
 * application's HTTP server and all of its layers, over a connection in memory.
 *
 * ```ts
 * const answer = await deliverWebhook(app, 'order.created', { id: 'o1' }, { issuer, secret });
 * expect(answer).toMatchObject({ status: 204, outcome: 'handled' });
 * ```
 *
 * Initialises the application if that was not done. The token has the time of the receiver's clock.
 *
 * @throws {@link WebhookConfigurationError} for an unknown receiver or an invalid key
 */
export async function deliverWebhook<Event extends WebhookEventName>(
  app: INestApplication,
  event: Event,
  data: WebhookEventData<Event> | Uint8Array | undefined,
  options: DeliverWebhookOptions,
): Promise<DeliveredWebhook> {
  const read = readOptions(OPTIONS, options, 'deliverWebhook');
  await initialise(app);
  const receiver = receiverOf(app, read.receiver);
  const path = read.path ?? mountedPath(app, receiver.path);
  const signed = await sign(event, data, { ...read, clock: read.clock ?? receiver.clock });
  const request = read.tamper?.(signed) ?? signed;
  return exchange(app, path.startsWith('/') ? path : `/${path}`, request);
}

/**
 * Finds a receiver in any webhook module of an application.
 *
 * @throws {@link WebhookConfigurationError} if none has it
 */
export function receiverOf(app: INestApplication, name: string | undefined): ResolvedReceiver {
  const modules = app.get(WebhookVerifier, { strict: false, each: true });
  let problem: unknown;
  for (const verifier of modules) {
    try {
      return verifier.receiver(name);
    } catch (error) {
      problem = error;
    }
  }
  throw problem;
}

async function sign(
  event: string,
  data: unknown,
  options: Read<typeof OPTIONS> & { readonly clock: WebhookClock },
): Promise<SignedTestWebhook> {
  const { issuer = '', sender, id, clock, now = () => clock.now() } = options;
  if (sender === undefined) return signRequest(event, data, { ...options, issuer });
  return {
    method: 'POST',
    token: '',
    ...(await sender.sign({ event, data, id, now: Number(now()) })),
  };
}

function mountedPath(app: INestApplication, path: string | undefined): string {
  if (path === undefined) {
    throw new Error(
      'The receiver has no path of its own; pass the path of its @WebhookRoute() as the option "path".',
    );
  }
  return mountPaths(path, app.get(ApplicationConfig, { strict: false }))[0]!;
}

async function exchange(
  app: INestApplication,
  path: string,
  request: SignedTestWebhook,
): Promise<DeliveredWebhook> {
  const [client, server] = duplexPair();
  const reporters = app.get(ReceiverReporter, { strict: false, each: true });
  let answered: AnsweredRequest | undefined;
  const observe = (report: AnsweredRequest): void => {
    const { socket } = nodeRequest(report.request) as Partial<IncomingMessage>;
    if (socket === (server as unknown)) answered = report;
  };
  for (const { observers } of reporters) observers.add(observe);
  try {
    connectInMemory(app, server);
    const closed = new Promise<void>((resolve) => server.once('close', resolve));
    const answer = await requestOver(client, path, request);
    // A guarded route reports after its answer, at the latest when the connection closes.
    client.destroy();
    server.destroy();
    await closed;
    return { ...answer, ...outcomeOf(answer.status, answered) };
  } finally {
    for (const { observers } of reporters) observers.delete(observe);
  }
}

function outcomeOf(
  status: number,
  answered: AnsweredRequest | undefined,
): Pick<DeliveredWebhook, 'outcome' | 'event' | 'error'> {
  const { event, unhandled, answer } = answered ?? {};
  const error = answered?.error instanceof HandlerFailure ? answered.error.cause : answered?.error;
  const known = { event, error };
  switch (answer?.situation) {
    case 'processed':
      return { ...known, outcome: unhandled === true ? 'unhandled' : 'handled' };
    case 'duplicate':
      return { outcome: 'duplicate' };
    case 'queued':
      return { ...known, outcome: 'queued' };
    default:
      // Without a report, no receiver has seen the request: another route answered, or none.
      return { ...known, outcome: event !== undefined && status >= 400 ? 'failed' : 'refused' };
  }
}
