import { hash, randomUUID } from 'node:crypto';
import { validateHeaderValue } from 'node:http';
import { isUint8Array } from 'node:util/types';
import { WebhookDeliveryError } from '../errors/webhook.error.js';
import { constraintsOf, type WebhookEventCatalog } from '../events/event-catalog.js';
import { hasMethods } from '../options/rules.js';
import {
  deliveryId,
  type DeliveryMethod,
  type DeliveryPayload,
  type OutgoingDelivery,
} from '../queue/webhook-delivery.js';
import { eventNameRule, isEventName } from '../token/event-name.js';
import { utf8 } from '../token/decoding.js';
import { isUtf8Json } from '../token/payload.js';
import { DEFAULT_PROFILE, type SentProfile } from '../token/webhook-token.constants.js';
import type { Endpoint } from './endpoint.js';
import {
  isSentProfile,
  isStandardWebhooks,
  namingProfile,
  profileUseProblem,
  SENT_PROFILE_RULE,
} from './sent-profile.js';

/** Options of one event that is signed for one endpoint. */
export interface SignOptions {
  /** The media type of bytes; required with them. */
  readonly contentType?: string | undefined;
  /**
   * The event's id (`txn`); 1 to 255 characters, default a random UUID. The same event with the same data and id is recorded
   * once for each endpoint; another event or other data under a used id is refused (`id_conflict`).
   */
  readonly id?: string | undefined;
  /** Overrides the endpoint's `aud`. */
  readonly audience?: string | readonly string[] | undefined;
  /** Overrides the endpoint's `sub`. */
  readonly subject?: string | undefined;
  /** Overrides the endpoint's choice of method; an explicit HEAD never falls back to POST. */
  readonly method?: DeliveryMethod | undefined;
  /** Overrides the endpoint's wire format. */
  readonly profile?: SentProfile | undefined;
  /**
   * The tenant whose endpoints receive the event; without it, the endpoints without a tenant. With the id of one endpoint,
   * the endpoint must belong to the tenant. An explicit `undefined` is refused: it is almost always a bug.
   */
  readonly tenant?: string;
}

/** Options of an event, of which only the profile and the content type are not checked yet. */
export interface DraftOptions extends SignOptions {
  readonly orderingKey?: string | undefined;
  /** Milliseconds. */
  readonly expiresIn?: number | undefined;
}

/** A checked and serialised event, not yet addressed to an endpoint. */
export type EventDraft = Omit<OutgoingDelivery, 'id' | 'endpointId' | 'url'>;

/**
 * Checks the event's name, and serialises the data.
 *
 * @param now - epoch milliseconds
 * @throws {@link WebhookDeliveryError} `invalid_option`, `invalid_data`, `unsupported_option`
 */
export function draftEvent(
  event: string,
  data: unknown,
  options: DraftOptions,
  now: number,
): EventDraft {
  const { id, audience, subject, method, tenant, profile, contentType } = options;
  const { orderingKey, expiresIn } = options;
  // Which rule holds depends on the wire format of each endpoint; that of the drafts includes the other.
  if (!isEventName(event, 'swt-draft-00')) {
    throw invalidOption(
      'The event name',
      `must be ${eventNameRule(namingProfile(profile ?? DEFAULT_PROFILE))}`,
    );
  }
  if (profile !== undefined && !isSentProfile(profile)) {
    throw new WebhookDeliveryError('unsupported_option', `profile ${SENT_PROFILE_RULE}.`);
  }
  const payload = encodePayload(data, contentType);
  if (payload.kind === 'bytes') requireJson(payload);
  const draft: { -readonly [Name in keyof EventDraft]: EventDraft[Name] } = {
    eventId: id ?? randomUUID(),
    event,
    payload,
    contentDigest: contentDigest(event, payload),
    createdAt: now,
  };
  if (audience !== undefined) draft.audience = audience;
  if (subject !== undefined) draft.subject = subject;
  if (method !== undefined) draft.method = method;
  if (profile !== undefined) draft.profile = profile;
  if (tenant !== undefined) draft.tenant = tenant;
  if (orderingKey !== undefined) draft.orderingKey = orderingKey;
  if (expiresIn !== undefined) draft.expiresAt = now + expiresIn;
  return draft;
}

/** Distinguishes a duplicate from another event with the same id. */
function contentDigest(event: string, { bytes, contentType }: DeliveryPayload): string {
  const body = bytes === undefined ? null : hash('sha256', bytes);
  return hash('sha256', JSON.stringify([event, contentType, body]), 'base64url');
}

/** @throws {@link WebhookDeliveryError} `id_conflict` if another event, or other data, was recorded under the id */
export function requireSameContent(
  delivery: OutgoingDelivery,
  known: Pick<OutgoingDelivery, 'contentDigest'>,
): void {
  if (known.contentDigest === undefined || known.contentDigest === delivery.contentDigest) return;
  throw new WebhookDeliveryError(
    'id_conflict',
    'The id was used before, for another event or for other data; use a new id for a new event.',
  );
}

/** The data as its receiver gets it: parsed JSON, bytes, or `undefined` without data. */
export function dataOf({ payload: { bytes, contentType } }: Pick<EventDraft, 'payload'>): unknown {
  const isJson = bytes !== undefined && isUtf8Json(contentType);
  return isJson ? JSON.parse(utf8.decode(bytes)) : bytes;
}

/** An envelope could not contain bytes that are not the JSON that their content type declares, and receivers refuse them. */
function requireJson(payload: DeliveryPayload): void {
  try {
    dataOf({ payload });
  } catch {
    // Not kept as a cause, as below.
    throw invalidData(
      'The bytes are not JSON in UTF-8; correct them, or pass the contentType that they have.',
    );
  }
}

/**
 * Checks a defined event as its receiver would: the JSON, and not the value that the caller passed.
 *
 * @param events - `undefined` if the application defines none
 * @throws {@link WebhookDeliveryError} `unknown_event`, `invalid_data`
 */
export async function requireDefined(
  draft: EventDraft,
  events: WebhookEventCatalog | undefined,
): Promise<void> {
  if (events === undefined) return;
  const { event } = draft;
  if (events.find(event) === undefined) {
    throw new WebhookDeliveryError('unknown_event', events.unknown(event));
  }
  if (!events.checks(event)) return;
  const issues = await events.check(event, dataOf(draft)).catch((cause: unknown) => {
    const message = `The definition of "${event}" throws, see the cause; report invalid data as an issue instead.`;
    throw new WebhookDeliveryError('invalid_data', message, { cause });
  });
  if (issues.length === 0) return;
  throw new WebhookDeliveryError(
    'invalid_data',
    `The data is not valid data of "${event}": ${constraintsOf(issues)}. Correct the data, or the definition.`,
  );
}

/**
 * Addresses a draft to an endpoint, whose tenant it gets.
 *
 * @throws {@link WebhookDeliveryError} `invalid_option` if the caller's choice of wire format or method does not fit
 *   the endpoint
 */
export function deliveryTo(endpoint: Endpoint, draft: EventDraft): OutgoingDelivery {
  const { endpointId, url, tenant = draft.tenant } = endpoint;
  const profile = draft.profile ?? endpoint.profile;
  const naming = namingProfile(profile);
  if (!isEventName(draft.event, naming)) {
    throw invalidOption('The event name', `must be ${eventNameRule(naming)} for ${endpoint.label}`);
  }
  if (isStandardWebhooks(profile) && !VISIBLE_ASCII.test(draft.eventId)) {
    throw invalidOption(
      'id',
      `must be visible ASCII without spaces for ${endpoint.label}: the header webhook-id cannot carry other characters`,
    );
  }
  if (draft.profile !== undefined || draft.method !== undefined) requireProfile(endpoint, draft);
  const { eventId } = draft;
  const delivery: { -readonly [Name in keyof OutgoingDelivery]: OutgoingDelivery[Name] } =
    endpointId === undefined
      ? { url, id: deliveryId({ eventId, url, tenant }), ...draft }
      : { endpointId, id: deliveryId({ eventId, endpointId, tenant }), ...draft };
  if (tenant !== undefined) delivery.tenant = tenant;
  return delivery;
}

const VISIBLE_ASCII = /^[\x21-\x7E]+$/;

function requireProfile(endpoint: Endpoint, draft: EventDraft): void {
  const { profile = endpoint.profile, method = endpoint.method } = draft;
  const problem = profileUseProblem({ ...endpoint, profile, method });
  if (problem !== undefined) {
    throw new WebhookDeliveryError('invalid_option', `profile for ${endpoint.label}: ${problem}.`);
  }
}

const JSON_TYPE = 'application/json';
const MEDIA_TYPE = /^[\w!#$&^.+-]+\/[\w!#$&^.+-]+\s*(?:;|$)/;

/**
 * Serialises an event's data once: these bytes are signed, sent and stored.
 *
 * @param data - a JSON value, or bytes with a content type; `undefined` for an event without data
 * @throws {@link WebhookDeliveryError} `invalid_data`; its message never quotes the data
 */
export function encodePayload(data: unknown, contentType?: string): DeliveryPayload {
  if (contentType !== undefined && !isMediaType(contentType)) {
    throw invalidData("The content type must be a media type, such as 'text/csv'.");
  }
  // Unlike instanceof, it does not throw for a revoked Proxy.
  if (isUint8Array(data)) {
    if (contentType === undefined) {
      throw invalidData("Bytes need the option contentType, such as 'application/octet-stream'.");
    }
    // Copied, because the caller may reuse its buffer while the delivery waits.
    return { kind: 'bytes', bytes: Buffer.from(data), contentType };
  }
  if (contentType !== undefined && !isUtf8Json(contentType)) {
    throw invalidData(
      'Only bytes can be sent with a content type that is not JSON in UTF-8; pass a Buffer, or leave contentType out.',
    );
  }
  const text = data === undefined ? undefined : serialize(data);
  return {
    kind: 'json',
    bytes: text === undefined ? undefined : Buffer.from(text),
    contentType: contentType ?? JSON_TYPE,
  };
}

function isMediaType(value: unknown): boolean {
  if (typeof value !== 'string' || !MEDIA_TYPE.test(value)) return false;
  try {
    validateHeaderValue('Content-Type', value);
    return true;
  } catch {
    return false;
  }
}

function serialize(data: unknown): string {
  let isPromise: boolean;
  let text: string | undefined;
  try {
    // JSON.stringify returns {} for a promise.
    isPromise = hasMethods(data, ['then']);
    text = isPromise ? undefined : JSON.stringify(data);
  } catch {
    // The error is not kept as a cause: its message may quote the data.
    throw invalidData(`The data is not JSON: ${jsonProblem(data)}.`);
  }
  if (isPromise) throw invalidData('The data is a promise; await it, and pass its value.');
  if (text === undefined) {
    const problem =
      typeof data === 'object'
        ? 'its toJSON method does not return a JSON value; correct it'
        : 'it is a function or a symbol; pass a JSON value';
    throw invalidData(`The data is not JSON: ${problem}.`);
  }
  return text;
}

/** Says where and why JSON.stringify failed, and what to do. */
function jsonProblem(data: unknown): string {
  try {
    return memberProblem(data, { path: 'data', key: '', parents: [] }) ?? 'it cannot be serialised';
  } catch {
    return 'it is nested too deeply, or reading it throws';
  }
}

interface JsonPosition {
  readonly path: string;
  readonly key: string;
  readonly parents: readonly object[];
}

function memberProblem(given: unknown, { path, key, parents }: JsonPosition): string | undefined {
  let value = given;
  const { toJSON } = (given ?? {}) as { toJSON?: unknown };
  if (typeof toJSON === 'function') {
    try {
      value = toJSON.call(given, key) as unknown;
    } catch {
      return `the toJSON method of ${path} throws; correct it`;
    }
  }
  if (typeof value === 'bigint') {
    return `${path} is a BigInt; convert it to a string or a number`;
  }
  if (typeof value !== 'object' || value === null) return undefined;
  if (parents.includes(value)) {
    return `${path} refers to an object that contains it; remove the cycle`;
  }
  for (const [name, member] of Object.entries(value)) {
    const below = Array.isArray(value) ? `${path}[${name}]` : `${path}${memberPath(name)}`;
    const problem = memberProblem(member, { path: below, key: name, parents: [...parents, value] });
    if (problem !== undefined) return problem;
  }
  return undefined;
}

/** Only names that a programmer would write are shown; others may be data, such as an e-mail address. */
function memberPath(name: string): string {
  return /^[A-Za-z_$][\w$]{0,63}$/.test(name) ? `.${name}` : '[…]';
}

function invalidData(message: string): WebhookDeliveryError {
  return new WebhookDeliveryError('invalid_data', message);
}

function invalidOption(what: string, rule: string): WebhookDeliveryError {
  return new WebhookDeliveryError('invalid_option', `${what} ${rule}.`);
}
