import { hash, randomUUID } from 'node:crypto';
import { WebhookDeliveryError } from '../errors/webhook.error.js';
import { eventNameRule, isEventName } from '../token/event-name.js';
import { WEBHOOK_PROFILES, type WebhookProfile } from '../token/webhook-token.constants.js';
import { deliveryId } from '../queue/delivery-id.js';
import { type Endpoint, profileUseProblem } from './endpoint.js';
import { encodePayload } from './payload-encoder.js';
import type { DeliveryMethod, OutgoingDelivery } from '../queue/webhook-delivery.interface.js';

/** Options of one event that is signed for one destination. */
export interface SignOptions {
  /** The media type of bytes; required with them. */
  readonly contentType?: string | undefined;
  /**
   * The event's id (`txn`); 1 to 255 characters, default a random UUID. The same event with the same data and id is recorded
   * once for each destination; another event or other data under a used id is refused (`id_conflict`).
   */
  readonly id?: string | undefined;
  /** Overrides the endpoint's `aud`. */
  readonly audience?: string | readonly string[] | undefined;
  /** Overrides the endpoint's `sub`. */
  readonly subject?: string | undefined;
  /** Overrides the endpoint's choice of method; an explicit HEAD never falls back to POST. */
  readonly method?: DeliveryMethod | undefined;
  /** Overrides the endpoint's wire format. */
  readonly profile?: WebhookProfile | undefined;
  /**
   * The tenant whose endpoints receive the event; without it, the endpoints without a tenant. With the id of one endpoint,
   * the endpoint must belong to the tenant. An explicit `undefined` is refused: it is almost always a bug.
   */
  readonly tenant?: string;
}

/** A checked and serialised event, not yet addressed to a destination. */
export type EventDraft = Omit<OutgoingDelivery, 'id' | 'endpointId' | 'url'>;

/**
 * Checks the event's name, and serialises the data.
 *
 * @param options - checked, except for the profile and the content type
 * @param now - epoch milliseconds
 * @throws {@link WebhookDeliveryError} `invalid_option`, `invalid_data`, `unsupported_option`
 */
export function draftEvent(
  event: string,
  data: unknown,
  options: SignOptions,
  now: number,
): EventDraft {
  const { id, audience, subject, method, tenant, profile, contentType } = options;
  // Which rule holds depends on the wire format of each destination; that of the drafts includes the other.
  if (!isEventName(event, 'swt-draft-00')) {
    throw invalid('The event name', `must be ${eventNameRule(profile)}`);
  }
  if (profile !== undefined && !WEBHOOK_PROFILES.includes(profile)) {
    throw new WebhookDeliveryError(
      'unsupported_option',
      `profile must be one of ${WEBHOOK_PROFILES.join(', ')}.`,
    );
  }
  const draft: { -readonly [Name in keyof EventDraft]: EventDraft[Name] } = {
    eventId: id ?? randomUUID(),
    event,
    payload: encodePayload(data, contentType),
    createdAt: now,
  };
  if (audience !== undefined) draft.audience = audience;
  if (subject !== undefined) draft.subject = subject;
  if (method !== undefined) draft.method = method;
  if (profile !== undefined) draft.profile = profile;
  if (tenant !== undefined) draft.tenant = tenant;
  return draft;
}

/** Adds the digest that a recorded event needs: it distinguishes a duplicate from another event with the same id. */
export function withContentDigest(draft: EventDraft): EventDraft {
  const { event, payload } = draft;
  const bytes = payload.bytes === undefined ? null : hash('sha256', payload.bytes);
  const content = JSON.stringify([event, payload.contentType, bytes]);
  return { ...draft, contentDigest: hash('sha256', content, 'base64url') };
}

/**
 * Addresses a draft to a destination, whose tenant it gets.
 *
 * @throws {@link WebhookDeliveryError} `invalid_option` if the caller's choice of wire format or method does not fit
 *   the destination
 */
export function deliveryTo(target: Endpoint, draft: EventDraft): OutgoingDelivery {
  const { endpointId, url, tenant = draft.tenant } = target;
  const profile = draft.profile ?? target.profile;
  if (!isEventName(draft.event, profile)) {
    throw invalid('The event name', `must be ${eventNameRule(profile)} for ${target.label}`);
  }
  if (draft.profile !== undefined || draft.method !== undefined) requireProfile(target, draft);
  const { eventId } = draft;
  const delivery: { -readonly [Name in keyof OutgoingDelivery]: OutgoingDelivery[Name] } =
    endpointId === undefined
      ? { ...draft, url, id: deliveryId({ eventId, url, tenant }) }
      : { ...draft, endpointId, id: deliveryId({ eventId, endpointId, tenant }) };
  if (tenant !== undefined) delivery.tenant = tenant;
  return delivery;
}

function requireProfile(target: Endpoint, draft: EventDraft): void {
  const { profile = target.profile, method = target.method } = draft;
  const problem = profileUseProblem({ profile, method, signer: target.signer });
  if (problem !== undefined) {
    throw new WebhookDeliveryError('invalid_option', `profile for ${target.label}: ${problem}.`);
  }
}

function invalid(what: string, rule: string): WebhookDeliveryError {
  return new WebhookDeliveryError('invalid_option', `${what} ${rule}.`);
}
