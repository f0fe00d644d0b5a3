import { hash } from 'node:crypto';
import { WebhookPayloadError, errorName, isWebhookError } from '../errors/webhook.error.js';
import { MemoryBody } from '../request/body.js';
import { envelopeDigest, isEnvelope } from '../request/sender-payload.js';
import { isJsonType } from '../token/payload.js';
import type { VerifiedBatch, VerifiedRequest } from '../request/webhook-scheme.js';
import { isEventName } from '../token/event-name.js';
import { isIdentifier } from '../token/identifier.js';
import { MAX_EVENT_NAME_LENGTH, MAX_TOKEN_BYTES } from '../token/webhook-token.constants.js';
import type { Proof, SenderMessage, SenderParts } from './sender.js';

/** A request whose signature holds. */
interface OpenedRequest {
  readonly message: SenderMessage;
  readonly proven: Proof;
  readonly body: Buffer;
  /** Of the body, `sha256:<hex>`. */
  readonly digest: string;
  readonly contentType: string | undefined;
  /** Seconds since the epoch. */
  readonly now: number;
  readonly maxJsonMembers: number;
}

/** The event of a request, or its items if the sender puts several into one. An odd item must not take the others with it. */
export function eventsOf(
  parts: SenderParts,
  opened: OpenedRequest,
): VerifiedRequest | VerifiedBatch {
  const items = ask('events', () => parts.split?.(opened.message));
  if (items === undefined) return eventOf(parts, opened);
  if (!Array.isArray(items)) throw invalid('the function "events" of the sender returned no list');
  return {
    batch: items.map((item, index) => {
      try {
        return eventOfItem(parts, opened, item, index);
      } catch (error) {
        return { error };
      }
    }),
  };
}

function eventOfItem(
  parts: SenderParts,
  opened: OpenedRequest,
  item: unknown,
  index: number,
): VerifiedRequest {
  const own = ownRequest(opened, item);
  const { id } = opened.proven;
  // Each event needs an id of its own: with that of the request, all but the first would be its duplicates.
  const proven = { ...opened.proven, ...(id !== undefined && { id: digestOf(id, `${index}`) }) };
  return eventOf(parts, { ...own, proven, digest: `sha256:${hash('sha256', own.body)}` });
}

/** An event as if it had a request of its own, with its JSON as the body: a queue stores it in this form. */
function ownRequest(opened: OpenedRequest, data: unknown): OpenedRequest {
  const body = Buffer.from(JSON.stringify(data ?? null));
  const message = { ...opened.message, data };
  return { ...opened, message, body, contentType: 'application/json' };
}

function eventOf(parts: SenderParts, given: OpenedRequest): VerifiedRequest {
  const event = nameOf(parts, given.message);
  const ownId = requireId(ask('id', () => parts.id?.(given.message)));
  // A queue restores data by the content type, which does not name the form that the sender's own parser reads.
  const isOwnForm =
    parts.parse !== undefined && !isJsonType(given.contentType ?? 'application/json');
  const data =
    parts.data?.(given.message, given.maxJsonMembers) ??
    given.proven.content ??
    (isOwnForm ? given.message.data : undefined);
  const opened = data === undefined ? given : ownRequest(given, data);
  const { message, proven, body, digest, contentType, now } = opened;
  const content = message.data;
  const signedId = requireId(proven.id);
  const envelope = parts.envelope === true && isEnvelope(content);
  const iat = proven.timestamp ?? proven.issuedAt ?? now;
  const kept = keptHeaders(message, parts.keptHeaders);
  const identifying = parts.identifying?.map((name) => message.headers.get(name) ?? '');
  const id = signedId ?? (identifying === undefined ? digest : digestOf(...identifying, digest));
  // An issuer must not use up the ids of another one.
  const issuersId = proven.issuer === undefined ? id : digestOf(proven.issuer, id);
  return {
    method: 'POST',
    claims: {
      iss: parts.name,
      jti: signedId === undefined && ownId !== undefined ? ownId : issuersId,
      // An id that no signature covers does not free a captured token for another one.
      ...(signedId !== undefined && ownId !== undefined && { txn: ownId }),
      iat,
      // Signed times are compared in whole seconds: the last one that is accepted has not ended at the tolerance.
      exp:
        proven.expires ??
        (proven.timestamp === undefined ? iat : proven.timestamp + parts.tolerance + 1),
      webhook: { event, ...(envelope && { envelope }) },
      ...(kept !== undefined && { headers: kept }),
      ...(proven.token !== undefined && { token: proven.token }),
    },
    profile: parts.name,
    attempt: undefined,
    data: envelope ? content.data : content,
    body: new MemoryBody(body),
    isSpooled: false,
    digest: contentOf(parts, opened, { signedId, ownId, envelope }),
    bodyVerified: parts.bodyVerified ?? true,
    contentType: contentType ?? 'application/json',
  };
}

/** The content that a sender may not change under one id. Most senders repeat an event with another state of its counters. */
function contentOf(
  parts: SenderParts,
  { digest, body, contentType }: OpenedRequest,
  event: {
    readonly signedId: string | undefined;
    readonly ownId: string | undefined;
    readonly envelope: boolean;
  },
): string | undefined {
  const { signedId, ownId, envelope } = event;
  const id = ownId ?? signedId;
  if (id === undefined) return digest;
  // A captured token that does not cover the body must not let another body in.
  if (parts.bodyVerified === false && ownId === undefined) return digest;
  if (parts.envelope === undefined) return id;
  // As for a token with the same body.
  if (envelope) return envelopeDigest(body);
  const isJson = contentType === undefined || isJsonType(contentType);
  return isJson && body.length <= MAX_TOKEN_BYTES ? undefined : digest;
}

export function nameOf(parts: SenderParts, message: SenderMessage): string {
  const event: unknown = ask('event', () => parts.event(message));
  if (isEventName(event, 'swt-draft-00')) return event;
  throw invalid(
    `the request names no event, or not with segments of letters, digits, "_" and "-" of at most ${MAX_EVENT_NAME_LENGTH} characters: set "event" of the sender`,
  );
}

/** Calls a function of the sender's options, which the data of a request may make throw. */
export function ask<T>(name: 'event' | 'events' | 'id' | 'challenge', call: () => T): T {
  try {
    return call();
  } catch (error) {
    if (isWebhookError(error)) throw error;
    throw invalid(
      `the function "${name}" of the sender failed: ${errorName(error)}; let it accept any request`,
    );
  }
}

function requireId(id: unknown): string | undefined {
  if (id === undefined || isIdentifier(id)) return id;
  throw invalid(
    typeof id === 'string'
      ? 'the id of the event is too long or has control characters'
      : 'the id of the event is no string: convert it in "id" of the sender',
  );
}

export function invalid(message: string): WebhookPayloadError {
  return new WebhookPayloadError('invalid_payload', message);
}

function digestOf(...parts: readonly string[]): string {
  return `sha256:${hash('sha256', parts.join('\n'))}`;
}

function keptHeaders(
  { headers }: SenderMessage,
  names: readonly string[] = [],
): Readonly<Record<string, string>> | undefined {
  const kept = names.flatMap((name) => {
    const value = headers.get(name);
    return isIdentifier(value) ? [[name, value] as const] : [];
  });
  return kept.length === 0 ? undefined : Object.fromEntries(kept);
}
