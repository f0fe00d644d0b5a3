import type { WebhookDeliveryView } from '../deliveries/delivery-view.js';
import type { WebhookEndpointView } from '../endpoints/webhook-endpoint.interface.js';
import type { WebhookInboxEntry } from '../receiver/inbox/webhook.inbox.js';
import type { StoredActivity } from '../endpoints/activity-store.js';
import type {
  ActivityRow,
  ConsoleAction,
  ConsoleCounts,
  ConsolePayload,
  DeliveryList,
  DeliveryRow,
  EndpointHealth,
  EndpointKeyRow,
  EndpointRow,
  InboxDetails,
  InboxRow,
  RecoveryRow,
} from './console-api.js';
import type { StoredRecovery } from './console.recovery.js';
import { timeToDelivery } from './console-statistics.js';
import type { ResolvedConsole, ShownPayload } from './console-options.js';

/** Bytes of a payload that are shown. */
const MAX_SHOWN = 65_536;

export function deliveryRow(view: WebhookDeliveryView): DeliveryRow {
  const { createdAt, updatedAt, nextAttemptAt, ...facts } = view;
  return {
    ...facts,
    createdAt: createdAt.toISOString(),
    updatedAt: updatedAt.toISOString(),
    ...(nextAttemptAt !== undefined && { nextAttemptAt: nextAttemptAt.toISOString() }),
  };
}

/** Percentiles over the delivered deliveries of a page, from their recording to their delivery. */
export function timesToDelivery(
  views: readonly WebhookDeliveryView[],
): Pick<DeliveryList, 'timeToDelivery'> {
  const times = views
    .filter(({ status }) => status === 'delivered')
    .map(timeToDelivery)
    .sort((a, b) => a - b);
  const { length: count } = times;
  if (count === 0) return {};
  const rank = (share: number): number => times[Math.ceil(share * count) - 1]!;
  return { timeToDelivery: { count, p50: rank(0.5), p95: rank(0.95) } };
}

/** @param showQuery - whether the query of its URL is shown, which may hold a credential */
export function endpointRow(
  view: WebhookEndpointView,
  health: EndpointHealth,
  { showQuery, now }: { readonly showQuery: boolean; readonly now: number },
): EndpointRow {
  const { id, tenant, url, events, description, source, disabled, pausedAt, keys } = view;
  const { createdAt, updatedAt, settings, credentials } = view;
  return {
    id,
    ...(tenant !== undefined && { tenant }),
    url: showQuery ? url : withoutQuery(url),
    events,
    ...(description !== undefined && { description }),
    source,
    ...(disabled !== undefined && {
      disabled: { at: disabled.at.toISOString(), reason: disabled.reason },
    }),
    ...(pausedAt !== undefined && { pausedAt: pausedAt.toISOString() }),
    keys: keyRows(keys, now),
    settings: {
      ...settings,
      ...(settings.headers && { headers: Object.keys(settings.headers) }),
    },
    ...(credentials !== undefined && { credentials }),
    ...(createdAt !== undefined && { createdAt: createdAt.toISOString() }),
    ...(updatedAt !== undefined && { updatedAt: updatedAt.toISOString() }),
    health,
  };
}

function keyRows(keys: WebhookEndpointView['keys'], now: number): EndpointKeyRow[] {
  const signing = keys.findLastIndex(({ signsFrom }) => signsFrom.getTime() <= now);
  return keys.map(({ kid, signsFrom }, index) => ({
    kid,
    signsFrom: signsFrom.toISOString(),
    state: index === signing ? 'signing' : index < signing ? 'retired' : 'next',
  }));
}

/** What {@link ActivityRow} says, as it is stored. */
interface StoredDetails extends Pick<ActivityRow, 'actor' | 'count' | 'code' | 'reason'> {
  readonly outcome?: ActivityRow['outcome'];
  readonly recovery?: StoredRecovery;
  /** Epoch milliseconds. */
  readonly endedAt?: number;
}

/** @param showActor - whether operators are named */
export function activityRow(entry: StoredActivity, showActor: boolean): ActivityRow {
  const { id, at, by, tenant, target } = entry;
  const { actor, count, code, reason, outcome, recovery, endedAt } = entry.details as StoredDetails;
  return {
    id,
    at: new Date(at).toISOString(),
    action: entry.action as ConsoleAction,
    by,
    ...((showActor || by === 'partner') && actor !== undefined && { actor }),
    ...(tenant !== undefined && { tenant }),
    ...(target !== undefined && { target }),
    ...(count !== undefined && { count }),
    outcome: recovery?.status ?? outcome ?? (endedAt === undefined ? 'running' : 'done'),
    ...(code !== undefined && { code }),
    ...(recovery !== undefined && { recovery: recoveryRow(entry, showActor) }),
    ...(reason !== undefined && { reason }),
    ...(endedAt !== undefined && { endedAt: new Date(endedAt).toISOString() }),
  };
}

/** @param showActor - whether operators are named */
export function recoveryRow(entry: StoredActivity, showActor: boolean): RecoveryRow {
  const { recovery, actor } = entry.details as StoredDetails;
  const { status, since, total, sent, skipped, updatedAt, until } = recovery!;
  return {
    endpoint: entry.target!,
    ...(entry.tenant !== undefined && { tenant: entry.tenant }),
    status,
    ...(since !== undefined && { since: new Date(since).toISOString() }),
    startedAt: new Date(until).toISOString(),
    updatedAt: new Date(updatedAt).toISOString(),
    total,
    sent,
    skipped,
    ...((showActor || entry.by === 'partner') && actor !== undefined && { actor }),
  };
}

export function inboxRow(entry: WebhookInboxEntry): InboxRow {
  const {
    headers: _headers,
    payload: _payload,
    explanation: _explanation,
    detail: _detail,
    deliveryId: _deliveryId,
    at,
    ...facts
  } = entry;
  return { ...facts, at: at.toISOString() };
}

export function inboxDetails(entry: WebhookInboxEntry): InboxDetails {
  const { headers, payload, explanation, detail, outcome, deliveryId } = entry;
  return {
    ...inboxRow(entry),
    ...(detail !== undefined && { detail }),
    ...(headers !== undefined && { headers }),
    hasPayload: payload !== undefined,
    retryable: deliveryId !== undefined && (outcome === 'dead' || outcome === 'queued'),
    ...(explanation !== undefined && {
      explanation: explanation as NonNullable<InboxDetails['explanation']>,
    }),
  };
}

/** A payload as it is shown: redacted by the application first, then cut. */
export function shownPayload(
  payload: ShownPayload,
  redact: ResolvedConsole['redact'],
): ConsolePayload {
  const { contentType, bytes } = payload;
  const facts = { contentType, size: bytes.byteLength };
  let shown: Uint8Array | string | undefined = bytes;
  try {
    // A copy, since it may change the bytes in place.
    if (redact !== undefined) shown = redact({ ...payload, bytes: Buffer.from(bytes) });
  } catch {
    shown = undefined;
  }
  if (shown === undefined) return { ...facts, truncated: false, redacted: true };
  const whole = typeof shown === 'string' ? Buffer.from(shown) : Buffer.from(shown);
  const part = whole.subarray(0, MAX_SHOWN);
  const isText = /^text\/|[/+](?:json|xml)\b|x-www-form-urlencoded/i.test(contentType);
  return {
    ...facts,
    truncated: part.length < whole.length,
    redacted: !whole.equals(bytes),
    ...(isText ? { text: part.toString() } : { base64: part.toString('base64') }),
  };
}

/** An endpoint's answer as it is shown: redacted too, since an endpoint may answer with the payload. */
export function shownAnswer(
  answer: string | undefined,
  { event, tenant }: Pick<WebhookDeliveryView, 'event' | 'tenant'>,
  redact: ResolvedConsole['redact'],
): string | undefined {
  if (answer === undefined) return undefined;
  const facts = { event, source: 'answer' as const, ...(tenant !== undefined && { tenant }) };
  const bytes = Buffer.from(answer);
  return shownPayload({ contentType: 'text/plain', bytes, ...facts }, redact).text;
}

function withoutQuery(url: string): string {
  return url.replace(/[?#].*$/s, '');
}

export function countsOf({ pending, delivered, dead, lag }: ConsoleCounts): ConsoleCounts {
  return { pending, delivered, dead, lag };
}
