import { createHash, randomUUID } from 'node:crypto';
import { WebhookDeliveryError } from '../errors/webhook.error.js';
import { eventNameRule, isEventName } from '../token/event-name.js';
import { identifierRule, isIdentifier } from '../token/identifier.js';
import { WEBHOOK_PROFILES, type WebhookProfile } from '../token/webhook-token.constants.js';
import { isAudience } from '../token/validate-claims.js';
import { deliveryId } from '../queue/delivery-id.js';
import type { DeliveryTarget } from './delivery-target.js';
import { profileUseFault } from './destination.js';
import { encodePayload } from './payload-encoder.js';
import type {
  DeliveryPayload,
  WebhookDelivery,
  DeliveryMethod,
} from '../queue/webhook-delivery.interface.js';

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
type EventDraft = Omit<WebhookDelivery, 'id' | 'endpointId' | 'url'>;

/**
 * Checks the event and its options, and serialises the data.
 *
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
  for (const [name, value] of Object.entries({ id, subject, tenant })) {
    if (value !== undefined && !isIdentifier(value)) {
      throw new WebhookDeliveryError('invalid_option', `${name}: ${identifierRule(name)}`);
    }
  }
  if (audience !== undefined && !isAudience(audience)) {
    throw invalid(
      'audience',
      'must be a string, or a list of strings, each of 1 to 255 characters',
    );
  }
  if (method !== undefined && !['auto', 'HEAD', 'POST'].includes(method)) {
    throw invalid('method', "must be 'auto', 'HEAD' or 'POST'");
  }
  if (profile !== undefined && !WEBHOOK_PROFILES.includes(profile)) {
    throw new WebhookDeliveryError(
      'unsupported_option',
      `profile must be one of ${WEBHOOK_PROFILES.join(', ')}.`,
    );
  }
  const payload = encodePayload(data, contentType);
  return {
    eventId: id ?? randomUUID(),
    event,
    payload,
    contentDigest: contentDigest(event, payload),
    createdAt: now,
    ...(audience !== undefined && { audience }),
    ...(subject !== undefined && { subject }),
    ...(method !== undefined && { method }),
    ...(profile !== undefined && { profile }),
    ...(tenant !== undefined && { tenant }),
  };
}

/** Tells whether two events under one id are the same event with the same data. */
function contentDigest(event: string, { contentType, bytes }: DeliveryPayload): string {
  // The length separates the parts.
  const head = JSON.stringify([event, contentType, bytes?.byteLength ?? null]);
  const digest = createHash('sha256').update(head);
  if (bytes !== undefined) digest.update(bytes);
  return digest.digest('base64url');
}

/**
 * Addresses a draft.
 *
 * @throws {@link WebhookDeliveryError} `invalid_option` if the caller's choice of wire format or method does not fit
 *   the destination
 */
export function deliveryTo(target: DeliveryTarget, draft: EventDraft): WebhookDelivery {
  const { endpointId, url } = target;
  const profile = draft.profile ?? target.profile;
  if (!isEventName(draft.event, profile)) {
    throw invalid('The event name', `must be ${eventNameRule(profile)} for ${target.label}`);
  }
  if (draft.profile !== undefined || draft.method !== undefined) requireProfile(target, draft);
  const destination = endpointId === undefined ? { url } : { endpointId };
  return { ...draft, ...destination, id: deliveryId({ ...draft, ...destination }) };
}

function requireProfile(target: DeliveryTarget, draft: EventDraft): void {
  const { profile = target.profile, method = target.method } = draft;
  const fault = profileUseFault({ profile, method, signer: target.signer });
  if (fault !== undefined) {
    throw new WebhookDeliveryError('invalid_option', `profile for ${target.label}: ${fault}.`);
  }
}

function invalid(what: string, rule: string): WebhookDeliveryError {
  return new WebhookDeliveryError('invalid_option', `${what} ${rule}.`);
}
