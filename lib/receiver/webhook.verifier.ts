import { Inject, Injectable } from '@nestjs/common';
import {
  WebhookConfigurationError,
  WebhookReplayError,
  WebhookStoreError,
  isWebhookError,
} from '../errors/webhook.error.js';
import { explainRequest } from '../explain/explain-request.js';
import type { WebhookExplanation } from '../explain/webhook-explanation.interface.js';
import type { ReplayVerdict } from '../replay/replay-store.js';
import { after, rescued, type MaybePromise } from '../token/maybe-promise.js';
import { rulesOf } from '../token/profiles/profile-choice.js';
import {
  type IncomingWebhook,
  fromRequestLike,
  type WebhookRequestLike,
} from '../request/incoming-webhook.js';
import { openRequest, type OpenedRequest } from '../request/open-request.js';
import type { ResolvedReceiver, ResolvedReceivers } from './receiver-options.interface.js';
import { DEFAULT_RECEIVER, WEBHOOK_RECEIVERS } from './receiver.constants.js';
import { ReceiverDrain } from './receiver.drain.js';
import { fingerprint } from '../request/content-fingerprint.js';
import { replayClaim } from './replay/replay-identity.js';
import { EventKeeping, WebhookEvent } from './webhook-event.js';
import type { RequestBody } from '../request/request-body.js';
import { WebhookReception } from './replay/webhook-reception.js';

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
   * another attempt, hand the handler in: it runs inside the reservation, and may `event.commit(tx)`.
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
    // Without a handler nobody says when the body may be removed, so it is kept in memory.
    const spool = options.handle === undefined ? undefined : receiver.spool;
    const reception = await this.admit(fromRequestLike(request), { ...receiver, spool });
    if (reception.duplicate) {
      reception.abandon();
      throw replayed();
    }
    try {
      await options.handle?.(reception.event);
      reception.requireLease();
    } catch (error) {
      await reception.fail();
      throw error;
    }
    try {
      await reception.complete();
    } catch (error) {
      await reception.fail();
      throw error;
    }
    return reception.event;
  }

  /**
   * Explains why {@link verify} accepts or refuses a request, step by step, with what can be observed of the
   * cause. Nothing is reserved or handled, so whether the event came before is not looked at; a body that
   * is a stream is read. For operators: never give the result to a sender, whom it would help to forge.
   *
   * @param options.receiver - name of the receiver whose rules hold; default: the only one, or `'default'`
   * @returns plain JSON without secret, token and payload
   * @throws {@link WebhookConfigurationError} for a receiver that there is not; for a bad request nothing
   */
  async explain(
    request: WebhookRequestLike,
    options: { readonly receiver?: string | undefined } = {},
  ): Promise<WebhookExplanation> {
    return explainRequest(fromRequestLike(request), this.receiver(options.receiver));
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
  admit(incoming: IncomingWebhook, receiver: ResolvedReceiver): MaybePromise<WebhookReception> {
    return after(openRequest(incoming, receiver), (opened) => {
      const { body } = opened.payload;
      return rescued(
        () => this.reserve(opened, receiver),
        (error) => {
          body.remove();
          throw error;
        },
      );
    });
  }

  private reserve(
    { method, token, payload }: OpenedRequest,
    receiver: ResolvedReceiver,
  ): MaybePromise<WebhookReception> {
    const { spooled, body } = payload;
    // Member by member: spreading costs more than all the rest of making the event (benchmark `receive`).
    const event = new WebhookEvent({
      isSpooled: spooled !== undefined,
      claims: token.claims,
      data: payload.data,
      body,
      bodyVerified: payload.bodyVerified,
      contentType: payload.contentType,
      method,
      profile: token.profile,
      attempt: rulesOf(token.profile).attempt(token.claims.webhook),
      receiver: receiver.name,
      signal: this.drain.signal,
      keeping: new EventKeeping(receiver.validator),
    });
    const { replayStore, clock } = receiver;
    const mark = spooled?.fingerprint ?? fingerprint(event.event, event.data);
    const claim = replayClaim(event, mark, {
      clockTolerance: receiver.clockTolerance,
      window: receiver.replayWindow,
      lease: receiver.replayLease,
      now: clock.now(),
    });
    return after(
      rescued(() => replayStore.reserve(claim), storeFailed),
      (verdict) => received(event, verdict, receiver, body),
    );
  }
}

/** What comes of an event that the replay store has looked up. */
function received(
  event: WebhookEvent,
  verdict: ReplayVerdict,
  receiver: ResolvedReceiver,
  body: RequestBody,
): WebhookReception {
  switch (verdict.status) {
    case 'reserved':
      return new WebhookReception(event, verdict.reservation, receiver, body);
    case 'done':
      if (receiver.onDuplicate === 'reject') throw replayed();
      return new WebhookReception(event, undefined, receiver, body);
    case 'in-progress':
      throw new WebhookReplayError('in_progress', 'the same event is being handled now');
    case 'conflict':
      throw new WebhookReplayError(
        'replayed',
        'the id was used before, for other content: a new event needs a new id',
      );
  }
}

/** A store of somebody else's may throw anything; whatever it is, nothing is handled unchecked. */
function storeFailed(error: unknown): never {
  if (isWebhookError(error)) throw error;
  throw new WebhookStoreError('store_unavailable', 'the replay store cannot be reached', {
    cause: error,
  });
}

function replayed(): WebhookReplayError {
  return new WebhookReplayError('replayed', 'the event was handled before');
}
