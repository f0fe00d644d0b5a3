import type { Readable } from 'node:stream';
import { Inject, Injectable } from '@nestjs/common';
import { WebhookConfigurationError } from '../errors/webhook-configuration.error.js';
import { WebhookPayloadError } from '../errors/webhook-payload.error.js';
import { WebhookReplayError } from '../errors/webhook-replay.error.js';
import { WebhookStoreError } from '../errors/webhook-store.error.js';
import { WebhookTokenError } from '../errors/webhook-token.error.js';
import { isWebhookError } from '../errors/webhook.error.js';
import type { ReplayVerdict } from '../replay/replay-store.js';
import { matchesEvent } from '../token/event-name.js';
import { checkPayload, payloadRule } from '../token/payload-rule.js';
import { rulesOf } from '../token/profiles/profile-registry.js';
import type {
  VerifiedWebhookToken,
  WebhookClaim,
  WebhookTokenClaims,
} from '../token/webhook-claims.interface.js';
import { readBearerToken } from './request/bearer-token.js';
import { checkDeclaredBody, readBody } from './request/body-reader.js';
import {
  fromHeaders,
  type BodySource,
  type HeadersLike,
  type IncomingWebhook,
} from './request/incoming-webhook.js';
import { isJsonType, parseJsonPayload } from './request/json-payload.js';
import type { ResolvedReceiver, ResolvedReceivers } from './receiver-options.interface.js';
import { DEFAULT_RECEIVER, WEBHOOK_RECEIVERS } from './receiver.constants.js';
import { keepValidation } from './handlers/receiver-validation.js';
import { ReceiverDrain } from './receiver.drain.js';
import { replayClaim } from './replay/replay-identity.js';
import { WebhookEvent } from './webhook-event.js';
import { WebhookReception } from './replay/webhook-reception.js';

/** A request that came by another way than an HTTP route of this application. */
export interface WebhookRequestLike {
  readonly method: string;
  readonly headers: HeadersLike;
  /** The exact octets after transfer decoding; a text is taken as UTF-8. */
  readonly body?: Uint8Array | string | NodeJS.ReadableStream | undefined;
}

/**
 * Turns a request into a verified event: token, then body, then replay, in this order, so that nobody
 * without a key can make the receiver read, parse or remember anything. It knows no status code.
 */
@Injectable()
export class WebhookVerifier {
  constructor(
    @Inject(WEBHOOK_RECEIVERS) private readonly receivers: ResolvedReceivers,
    private readonly drain: ReceiverDrain,
  ) {}

  /**
   * Verifies a request that came another way: a queue, a serverless event, a test.
   *
   * The event counts as handled once this resolves. To have a failed handler leave the event free for
   * another attempt, hand the handler in: it runs inside the reservation.
   *
   * @param options.receiver - name of the receiver whose rules hold; default: the only one, or `'default'`
   * @param options.handle - what to do with the event
   * @throws {@link WebhookTokenError}, {@link WebhookPayloadError}, {@link WebhookStoreError};
   *   {@link WebhookReplayError} also for a copy of an event that was handled before
   */
  async verify(
    request: WebhookRequestLike,
    options: {
      readonly receiver?: string | undefined;
      readonly handle?: ((event: WebhookEvent) => unknown) | undefined;
    } = {},
  ): Promise<WebhookEvent> {
    const receiver = this.receiver(options.receiver);
    const incoming: IncomingWebhook = {
      method: request.method.toUpperCase(),
      headers: fromHeaders(request.headers),
      body: bodySource(request.body),
    };
    const reception = await this.admit(incoming, receiver);
    if (reception.duplicate) throw replayed();
    try {
      await options.handle?.(reception.event);
    } catch (error) {
      await reception.fail();
      throw error;
    }
    await reception.complete();
    return reception.event;
  }

  /**
   * Finds a receiver by its name.
   *
   * @param name - default: the only receiver, or the one named `'default'`
   * @throws {@link WebhookConfigurationError}
   */
  receiver(name?: string): ResolvedReceiver {
    const sole = this.receivers.size === 1 ? this.receivers.values().next().value : undefined;
    const found =
      name === undefined
        ? (sole ?? this.receivers.get(DEFAULT_RECEIVER))
        : this.receivers.get(name);
    if (found !== undefined) return found;
    const known = [...this.receivers.keys()].map((one) => `"${one}"`).join(', ') || 'none';
    throw new WebhookConfigurationError([
      {
        path: 'receiver',
        message: `there is no receiver "${name ?? DEFAULT_RECEIVER}" (configured: ${known}): name one of them, or add it to WebhookModule.forRoot`,
      },
    ]);
  }

  /**
   * Lets an event in: everything up to, and not including, its handling.
   *
   * @internal
   */
  async admit(incoming: IncomingWebhook, receiver: ResolvedReceiver): Promise<WebhookReception> {
    const method = webhookMethod(incoming.method);
    const token = await receiver.tokens.verify(readBearerToken(incoming.headers));
    const { claims, profile } = token;
    checkAllowed(receiver, claims);
    const payload = await this.readPayload(incoming, method, receiver, token);
    const event = new WebhookEvent({
      ...payload,
      claims,
      method,
      profile,
      attempt: rulesOf(profile).attempt(claims.webhook),
      receiver: receiver.name,
      signal: this.drain.signal,
    });
    keepValidation(event, receiver.validation);
    return this.reserve(event, receiver);
  }

  private async readPayload(
    incoming: IncomingWebhook,
    method: 'HEAD' | 'POST',
    receiver: ResolvedReceiver,
    { claims, profile }: VerifiedWebhookToken,
  ): Promise<Payload> {
    const { webhook } = claims;
    const rule = payloadRule(webhook, method, { requireHash: receiver.requireHash, profile });
    if (rule.kind === 'no-body') return inlinePayload(webhook.data, true);
    checkDeclaredBody(incoming, rule, receiver.maxBodyBytes);
    const { bytes, computed } = await readBody(incoming.body, rule, receiver.maxBodyBytes);
    const { source, bodyVerified } = checkPayload(webhook, rule, bytes.length, computed);
    if (source !== 'body') {
      return inlinePayload(source === 'data' ? webhook.data : undefined, bodyVerified);
    }
    const contentType = incoming.headers.get('content-type');
    const data =
      contentType !== undefined && isJsonType(contentType)
        ? parseJsonPayload(bytes, contentType)
        : bytes;
    return { data, body: bytes, bodyVerified, contentType };
  }

  private async reserve(
    event: WebhookEvent,
    receiver: ResolvedReceiver,
  ): Promise<WebhookReception> {
    const { replayStore, leases, clock } = receiver;
    const claim = replayClaim(event, {
      clockTolerance: receiver.clockTolerance,
      window: receiver.replayWindow,
      lease: receiver.replayLease,
      now: clock.now(),
    });
    const verdict = await askStore(() => replayStore.reserve(claim));
    switch (verdict.status) {
      case 'reserved':
        return new WebhookReception(event, verdict.reservation, replayStore, leases);
      case 'done':
        if (receiver.onDuplicate === 'reject') throw replayed();
        return new WebhookReception(event, undefined, replayStore, leases);
      case 'in-progress':
        throw new WebhookReplayError('in_progress', 'the same event is being handled now');
      case 'conflict':
        throw new WebhookReplayError(
          'replayed',
          'the id was used before, for other content: a new event needs a new id',
        );
    }
  }
}

/** What the request carries. */
interface Payload {
  readonly data: unknown;
  readonly body: Buffer;
  readonly bodyVerified: boolean;
  readonly contentType: string | undefined;
}

function inlinePayload(data: WebhookClaim['data'], bodyVerified: boolean): Payload {
  const contentType = data === undefined ? undefined : 'application/json';
  return { data, body: Buffer.alloc(0), bodyVerified, contentType };
}

function webhookMethod(method: string): 'HEAD' | 'POST' {
  if (method === 'HEAD' || method === 'POST') return method;
  throw new WebhookPayloadError('method_not_allowed', 'a webhook is sent by HEAD or POST');
}

function checkAllowed(receiver: ResolvedReceiver, claims: WebhookTokenClaims): void {
  const patterns = receiver.allowedEvents.get(claims.iss);
  if (patterns?.some((pattern) => matchesEvent(pattern, claims.webhook.event)) === false) {
    throw new WebhookTokenError('event_forbidden', 'the issuer may not send this event', {
      claim: 'webhook.event',
    });
  }
}

/** A store of somebody else's may throw anything; whatever it is, nothing is handled unchecked. */
async function askStore(ask: () => ReplayVerdict | Promise<ReplayVerdict>): Promise<ReplayVerdict> {
  try {
    return await ask();
  } catch (error) {
    if (isWebhookError(error)) throw error;
    throw new WebhookStoreError('store_unavailable', 'the replay store cannot be reached', {
      cause: error,
    });
  }
}

function bodySource(body: WebhookRequestLike['body']): BodySource {
  if (body === undefined) return { kind: 'bytes', bytes: Buffer.alloc(0) };
  if (typeof body === 'string') return { kind: 'bytes', bytes: Buffer.from(body) };
  if (body instanceof Uint8Array) return { kind: 'bytes', bytes: body };
  return { kind: 'stream', stream: body as Readable };
}

function replayed(): WebhookReplayError {
  return new WebhookReplayError('replayed', 'the event was handled before');
}
