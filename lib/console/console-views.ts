import type { DeliveryStanding } from '../deliveries/delivery-view.js';
import type { WebhookEndpointView } from '../endpoints/webhook-endpoint.interface.js';
import type { WebhookInboxEntry } from '../receiver/inbox/webhook.inbox.js';
import type { StoredActivity } from '../endpoints/activity-store.js';
import type { WebhookExplanation } from '../explain/webhook-explanation.interface.js';
import type { ConsoleAction, ConsolePayload } from './console-api.js';
import type { StoredRecovery } from './console.recovery.js';
import type { ResolvedConsole, ShownPayload } from './console-options.js';

/** Bytes of a payload that are shown. */
const MAX_SHOWN = 65_536;

/** @param showQuery - see {@link shownUrl} */
export function endpointRow(
  { metadata: _metadata, version: _version, ...view }: WebhookEndpointView,
  { showQuery, now }: { readonly showQuery: boolean; readonly now: number },
) {
  const { url, keys, settings } = view;
  const signing = keys.findLastIndex(({ signsFrom }) => signsFrom.getTime() <= now);
  return {
    ...view,
    /** Without its query, which may hold a credential, unless the session may `manage-endpoints`. */
    url: shownUrl(url, showQuery),
    /** Oldest first. Empty for configured endpoints, and if the publisher signs. */
    keys: keys.map((key, index) => ({
      ...key,
      /** `signing`: of new requests. `next`: it signs from `signsFrom` on. `retired`: a later one signs. */
      state: keyState(index - signing),
    })),
    /** What differs from the publisher's settings. Of headers, the names only. */
    settings: { ...settings, headers: settings.headers && Object.keys(settings.headers) },
  };
}

/** @param place - relative to the key that signs */
function keyState(place: number): 'signing' | 'next' | 'retired' {
  if (place === 0) return 'signing';
  return place < 0 ? 'retired' : 'next';
}

/** What an entry of the activity log says besides, as it is stored. */
export interface ActivityDetails {
  /** Who: the answer of the option `actor`, or `portal:TENANT`. In the portal, operators have no name. */
  readonly actor?: string | undefined;
  /** Number of affected things, for an action on several. */
  readonly count?: number | undefined;
  /** Code of the error, with `failed`. */
  readonly code?: string | undefined;
  /** With `endpoint.failing` and `queue.lagging`: why. */
  readonly reason?: string | undefined;
  readonly outcome?: 'done' | 'failed';
}

interface StoredDetails extends ActivityDetails {
  readonly recovery?: StoredRecovery;
  /** Epoch milliseconds. */
  readonly endedAt?: number;
}

/** @param showActor - whether operators are named */
export function activityRow(entry: StoredActivity, showActor: boolean) {
  const { id, at, by, tenant, target } = entry;
  const { actor, count, code, reason, outcome, recovery, endedAt } = entry.details as StoredDetails;
  return {
    id,
    at: isoTime(at),
    action: entry.action as ConsoleAction,
    /** A user of the console, a user of the portal, or the library itself. */
    by,
    actor: showActor || by === 'partner' ? actor : undefined,
    tenant,
    /** Id of the delivery, endpoint or entry; absent for several. */
    target,
    count,
    /** `running`: it lasts, such as a recovery, or an endpoint that fails. */
    outcome: recovery?.status ?? outcome ?? (endedAt === undefined ? 'running' : 'done'),
    code,
    /** With `endpoint.recover`. */
    recovery: recovery && recoveryRow(entry, showActor),
    reason,
    /** With `endpoint.failing` and `queue.lagging`: when it was over; absent while it lasts. */
    endedAt: endedAt === undefined ? undefined : isoTime(endedAt),
  };
}

/** @param showActor - whether operators are named */
export function recoveryRow(entry: StoredActivity, showActor: boolean) {
  const { recovery, actor } = entry.details as StoredDetails;
  const { status, since, total, sent, skipped, updatedAt, until } = recovery!;
  return {
    endpoint: entry.target!,
    tenant: entry.tenant,
    /** Another process continues a running one whose process has ended. */
    status,
    /** Absent for all missed deliveries. */
    since: since === undefined ? undefined : isoTime(since),
    /** When it began; later deliveries are not sent again. */
    startedAt: isoTime(until),
    updatedAt: isoTime(updatedAt),
    /** Missed deliveries when it began. */
    total,
    /** Deliveries that were sent again. */
    sent,
    /** Deliveries that could not, because their payload is gone. */
    skipped,
    /** Who began it; absent in the portal if an operator did. */
    actor: showActor || entry.by === 'partner' ? actor : undefined,
  };
}

function isoTime(time: number): string {
  return new Date(time).toISOString();
}

export function inboxRow({
  headers: _headers,
  payload: _payload,
  explanation: _explanation,
  detail: _detail,
  deliveryId: _deliveryId,
  ...facts
}: WebhookInboxEntry) {
  return facts;
}

export function inboxDetails({ payload, deliveryId, explanation, ...entry }: WebhookInboxEntry) {
  return {
    ...entry,
    /** Whether `GET …/payload` has one. */
    hasPayload: payload !== undefined,
    /** Whether `POST …/retry` applies: the entry is a dead letter, or waits for its next run. */
    retryable: deliveryId !== undefined && (entry.outcome === 'dead' || entry.outcome === 'queued'),
    /** Why the request was refused, step by step. Absent if it was accepted, or was not explained at the time. */
    explanation: explanation as WebhookExplanation | undefined,
  };
}

/** A payload as it is shown: redacted by the application first, then cut. */
export function shownPayload(
  payload: ShownPayload,
  redact: ResolvedConsole['redact'],
): ConsolePayload {
  const { contentType, bytes } = payload;
  const facts = { contentType, size: bytes.byteLength };
  let whole: Buffer;
  try {
    // A copy, since it may change the bytes in place.
    const copy = Buffer.from(bytes);
    // Throws for a value that is neither bytes nor a string.
    whole =
      redact === undefined ? copy : Buffer.from(redact({ ...payload, bytes: copy }) as string);
  } catch {
    return { ...facts, truncated: false, redacted: true };
  }
  const part = whole.subarray(0, MAX_SHOWN);
  const isText = /^text\/|[/+](?:json|xml)\b|x-www-form-urlencoded/i.test(contentType);
  return {
    ...facts,
    truncated: part.length < whole.length,
    redacted: !whole.equals(bytes),
    ...(isText ? { text: part.toString() } : { base64: part.toString('base64') }),
  };
}

/** An answer or the messages of errors as they are shown: redacted too, since they may repeat the payload. */
export function shownAnswer(
  answer: string | undefined,
  facts: Pick<ShownPayload, 'event' | 'source' | 'tenant'>,
  redact: ResolvedConsole['redact'],
): string | undefined {
  if (answer === undefined) return undefined;
  const bytes = Buffer.from(answer);
  return shownPayload({ contentType: 'text/plain', bytes, ...facts }, redact).text;
}

/** @param showQuery - whether its query is shown, which may hold a credential */
export function shownUrl(url: string, showQuery: boolean): string {
  return showQuery ? url : url.replace(/[?#].*$/s, '');
}

export function countsOf({
  pending,
  delivered,
  dead,
  held,
  lag,
}: DeliveryStanding): DeliveryStanding {
  return { pending, delivered, dead, held, lag };
}
