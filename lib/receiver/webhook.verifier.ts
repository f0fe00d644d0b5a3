import { Inject, Injectable } from '@nestjs/common';
import {
  WebhookConfigurationError,
  WebhookPayloadError,
  WebhookReplayError,
  WebhookStoreError,
  isWebhookError,
} from '../errors/webhook.error.js';
import { constraintsOf } from '../events/event-catalog.js';
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
import { definedDataIssues } from './handlers/defined-data.js';
import { contentFingerprint, digestFingerprint } from '../request/content-fingerprint.js';
import { replayClaim } from './replay/replay-identity.js';
import { EventInternals, WebhookEvent } from './webhook-event.js';
import type { RequestBody } from '../request/request-body.js';
import { WebhookReception } from './replay/webhook-reception.js';

/**
 * Turns a request into a verified event: token, then body, then replay. In this order, a sender without a key cannot make the
 * receiver read, parse or store anything.
 */
@Injectable()
export class WebhookVerifier {
  constructor(
    @Inject(WEBHOOK_RECEIVERS) private readonly receivers: ResolvedReceivers,
    private readonly drain: ReceiverDrain,
  ) {}

  /**
   * Verifies a request that did not arrive on a route of this application: from a queue, a serverless event, a test.
   *
   * The event counts as handled when this resolves. Pass `handle` to free the event for another attempt if handling fails: it
   * runs while the event is reserved, and may call `event.commit(tx)`.
   *
   * @param options.receiver - name of the receiver whose rules apply; default: the only one, or `'default'`
   * @param options.handle - handles the event
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
    // Without a handler, it is unknown when a spooled body may be removed, so it is kept in memory.
    const spool = options.handle === undefined ? undefined : receiver.spool;
    const reception = await this.admit(fromRequestLike(request), { ...receiver, spool });
    if (reception.duplicate) {
      reception.abandon();
      throw replayed();
    }
    try {
      await requireDefined(reception.event, receiver);
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
   * Explains step by step why {@link verify} accepts or refuses a request, and what can be observed of the cause.
   *
   * Nothing is reserved or handled, so it does not check for a duplicate. A body that is a stream is read. The result is for
   * operators: do not send it to a sender, whom it could help to forge a token.
   *
   * @param options.receiver - name of the receiver whose rules apply; default: the only one, or `'default'`
   * @returns plain JSON without secret, token and payload
   * @throws {@link WebhookConfigurationError} for an unknown receiver; a bad request does not throw
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
        message: `receiver "${name ?? DEFAULT_RECEIVER}" is not configured (configured: ${known}); use one of them, or add it to WebhookModule.forRoot`,
      },
    ]);
  }

  /**
   * Verifies a request and reserves its event; the caller handles it.
   *
   * @hidden
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
    const { body, digest } = payload;
    // Member by member: a spread costs more than everything else here (benchmark `receive`).
    const event = new WebhookEvent({
      isSpooled: payload.isSpooled,
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
      internals: new EventInternals(receiver.validator),
    });
    const { replayStore, clock } = receiver;
    const fingerprint =
      digest === undefined
        ? contentFingerprint(event.event, payload.data)
        : digestFingerprint(event.event, digest);
    const claim = replayClaim(event, fingerprint, {
      clockTolerance: receiver.clockTolerance,
      window: receiver.replayWindow,
      lease: receiver.replayLease,
      now: clock.now(),
    });
    return after(
      rescued(() => replayStore.reserve(claim), storeFailed),
      (verdict) => receptionFor(verdict, event, receiver, body),
    );
  }
}

/** @throws {@link WebhookPayloadError} `invalid_payload` */
async function requireDefined(event: WebhookEvent, { events }: ResolvedReceiver): Promise<void> {
  const issues = events === undefined ? [] : await definedDataIssues(event, events);
  if (issues.length === 0) return;
  throw new WebhookPayloadError(
    'invalid_payload',
    `the data is not valid data of ${event.event}: ${constraintsOf(issues)}`,
  );
}

/** @throws {@link WebhookReplayError} for an event in progress, a conflict, and a copy that the receiver refuses */
function receptionFor(
  verdict: ReplayVerdict,
  event: WebhookEvent,
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
        'the id was used before with other content; a new event needs a new id',
      );
  }
}

/** A custom store may throw anything; in every case the request is refused. */
function storeFailed(error: unknown): never {
  if (isWebhookError(error)) throw error;
  throw new WebhookStoreError('store_unavailable', 'the replay store cannot be reached', {
    cause: error,
  });
}

function replayed(): WebhookReplayError {
  return new WebhookReplayError('replayed', 'the event was handled before');
}
