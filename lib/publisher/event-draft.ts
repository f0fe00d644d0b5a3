import { createHash, randomUUID } from 'node:crypto';
import { parseDuration } from '../clock/duration.js';
import { WebhookDeliveryError } from '../errors/webhook.error.js';
import { eventNameRule, isEventName } from '../token/event-name.js';
import { identifierRule, isIdentifier } from '../token/identifier.js';
import { WEBHOOK_PROFILES } from '../token/webhook-token.constants.js';
import { isAudience } from '../token/validate-claims.js';
import { deliveryId } from '../queue/delivery-id.js';
import type { DeliveryTarget } from '../sending/delivery-target.js';
import { profileUseFault } from '../sending/destination-profile.js';
import { encodePayload } from '../sending/payload-encoder.js';
import { isOptions, unknownOptions } from '../options/option-shape.js';
import type { PublishOptions, SignOptions } from './publish-options.interface.js';
import type { DeliveryPayload, WebhookDelivery } from '../queue/webhook-delivery.interface.js';

/** An event that is checked and serialised, before it is known where it goes. */
type EventDraft = Omit<WebhookDelivery, 'id' | 'endpointId' | 'url'>;

/** The options of `sign`, each with a member of any value. */
export const SIGN_OPTIONS: Readonly<Record<keyof SignOptions, true>> = {
  contentType: true,
  id: true,
  audience: true,
  subject: true,
  method: true,
  profile: true,
  tenant: true,
};

/** The options of `publish` and `send`. */
export const PUBLISH_OPTIONS: Readonly<Record<keyof PublishOptions, true>> = {
  ...SIGN_OPTIONS,
  delay: true,
  signal: true,
  tx: true,
};

/**
 * Reads the data and the options of a call.
 *
 * `undefined` stands for an event without data only if options follow, which need a place before them.
 *
 * @param known - an object with a member for each option of the call
 * @throws {@link WebhookDeliveryError} `invalid_data`, `invalid_option`
 */
export function readArguments(
  args: readonly [data?: unknown, options?: PublishOptions],
  known: Readonly<Partial<Record<keyof PublishOptions, true>>>,
): { readonly data: unknown; readonly options: PublishOptions } {
  const [data, options = {}] = args;
  if (args.length > 0 && data === undefined && args[1] === undefined) {
    throw new WebhookDeliveryError(
      'invalid_data',
      'The data is undefined, which is almost always a bug; pass the data, or leave the argument out for an event without data.',
    );
  }
  if (!isOptions(options)) throw invalid('The options', 'must be an object');
  const [unknown] = unknownOptions(options, known);
  if (unknown !== undefined) {
    throw new WebhookDeliveryError('invalid_option', `${unknown[0]}: ${unknown[1]}`);
  }
  if ('tenant' in options && options.tenant === undefined) {
    throw new WebhookDeliveryError(
      'invalid_option',
      'tenant: is undefined, which is almost always a bug; pass a tenant, or leave the option out for endpoints without a tenant.',
    );
  }
  return { data, options };
}

/**
 * Checks the event and its options, and serialises the data.
 *
 * @param now - epoch milliseconds
 * @throws {@link WebhookDeliveryError} `invalid_option`, `invalid_data`, `unsupported_option`
 */
export function draftEvent(
  event: string,
  data: unknown,
  options: PublishOptions,
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
    throw invalid('audience', 'must be a text, or a list of texts, each of 1 to 255 characters');
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
 * @throws {@link WebhookDeliveryError} `invalid_option` where the destination cannot be sent the wire format,
 *   or not by the method, that the caller asks for
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

/**
 * Reads the option `delay`.
 *
 * @returns milliseconds
 * @throws {@link WebhookDeliveryError} `invalid_option`
 */
export function readDelay(delay: PublishOptions['delay']): number {
  const ms = parseDuration(delay ?? 0);
  if (ms === undefined) {
    throw invalid('delay', "must be a duration: milliseconds, or a text like '15s' or '24h'");
  }
  return ms;
}

function invalid(what: string, rule: string): WebhookDeliveryError {
  return new WebhookDeliveryError('invalid_option', `${what} ${rule}.`);
}
