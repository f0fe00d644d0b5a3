import { randomBytes } from 'node:crypto';
import {
  Inject,
  Injectable,
  Logger,
  type OnApplicationBootstrap,
  type OnApplicationShutdown,
} from '@nestjs/common';
import { waitUntil } from '../../clock/webhook-clock.js';
import { errorName, isWebhookError, quietly } from '../../errors/webhook.error.js';
import { explainRequest } from '../../explain/explain-request.js';
import type { InboxContent, InboxEntry, InboxOutcome } from '../../inbox/inbox-store.js';
import { InboxWriter } from '../../inbox/inbox.writer.js';
import { fromNodeRequest, nodeRequest, pathOfRequest, rawHeadersOf } from '../node-http.js';
import { webhookToken } from '../../request/open-request.js';
import type { WebhookScheme } from '../../request/webhook-scheme.js';
import { WEBHOOK_RECEIVERS } from '../receiver.constants.js';
import type { ResolvedReceivers } from '../receiver-options.resolver.js';
import { type AnsweredRequest, ReceiverReporter } from '../receiver.reporter.js';
import { internalsOf, isReadOnDemand, type WebhookEvent } from '../webhook-event.js';
import { type ResolvedInbox, WEBHOOK_INBOX } from './inbox-options.js';

/** Explanations per second; each may check a signature with several keys. */
const MAX_EXPLAINED = 5;
/** Milliseconds that a shutdown waits for the store. */
const SHUTDOWN_TIME = 1_000;

/** Headers that may hold a credential; they are never kept, nor are those that a receiver's sender names. */
const CREDENTIAL =
  /^(?:cookie|set-cookie|x-amzn-oidc-data)$|auth|token|secret|(?<!idempotency-)key|signature|password|assertion|session|credential/i;

/** Situations in which a handler of a verified event did not succeed. */
const FAILURES: ReadonlySet<string> = new Set([
  'handler_failed',
  'validation_failed',
  'application_refused',
  'lease_lost',
]);

/** Turns answered requests into entries of the inbox. Reading a token or a payload is left to the background. */
@Injectable()
export class InboxRecorder implements OnApplicationBootstrap, OnApplicationShutdown {
  private readonly logger = new Logger('WebhookReceiver');
  /** `undefined` if nothing is recorded. */
  readonly writer: InboxWriter | undefined;

  private readonly nonce = randomBytes(4).toString('hex');
  private counter = 0;
  private explained = 0;
  private explainedSince = 0;

  /** @param reporter - of the receivers; absent in a process without them, as these are */
  constructor(
    @Inject(WEBHOOK_INBOX) readonly inbox: ResolvedInbox | undefined,
    reporter?: ReceiverReporter,
    @Inject(WEBHOOK_RECEIVERS) private readonly receivers: ResolvedReceivers = new Map(),
  ) {
    reporter?.observers.add((answered) => this.answered(answered));
    this.writer =
      inbox && new InboxWriter(inbox.store, inbox.clock, (error) => this.logOutage(error));
  }

  /** Of all receivers: a request may be refused before its receiver is known. */
  private get credentialHeaders(): ReadonlySet<string> {
    const schemes = [...this.receivers.values()].map(({ scheme }) => scheme);
    return new Set(schemes.flatMap(({ credentialHeaders = [] }) => [...credentialHeaders]));
  }

  onApplicationBootstrap(): void {
    this.writer?.start();
  }

  /** Records how a request was answered. Never throws. */
  private answered(answered: AnsweredRequest): void {
    const { inbox, writer } = this;
    if (inbox === undefined || writer === undefined) return;
    // No event, and sent as often as the sender likes.
    if (answered.answer.situation === 'challenge') return;
    try {
      const outcome = outcomeOf(answered);
      if (outcome === 'refused' || outcome === 'duplicate') {
        if (!writer.takesRepeated(outcome)) return;
        const entry = this.entryOf(answered, outcome);
        const complete =
          outcome === 'refused' ? this.refusedEntry(entry, answered, inbox) : () => entry;
        return writer.addRepeated(outcome, complete);
      }
      const entry = this.entryOf(answered, outcome);
      const bytes = contentBytes(answered, entry, inbox);
      if (bytes === 0 || !writer.takesContent(bytes)) return writer.add(() => entry);
      writer.add(this.withContent(entry, answered, inbox), bytes);
    } catch {
      // An inbox must not change an answer.
    }
  }

  settled(deliveryId: string, outcome: 'handled' | 'queued' | 'dead', runs: number): void {
    this.writer?.settle({ deliveryId, outcome, runs });
  }

  async onApplicationShutdown(): Promise<void> {
    if (this.inbox === undefined) return;
    const { clock } = this.inbox;
    await waitUntil(clock, clock.now() + SHUTDOWN_TIME, this.writer?.close());
  }

  private entryOf(
    { answer, request, receiver, event, error }: AnsweredRequest,
    outcome: InboxOutcome,
  ): InboxEntry {
    const at = this.inbox!.clock.now();
    const node = nodeRequest(request);
    const length = node.headers['content-length'] ?? '';
    return {
      id: this.nextId(at),
      at,
      outcome,
      status: answer.status,
      code: answer.problem?.code,
      detail: answer.problem?.detail,
      receiver: event?.receiver ?? receiver?.name,
      method: node.method ?? '',
      path: pathOfRequest(request),
      size: /^\d{1,15}$/.test(length) ? Number(length) : undefined,
      authenticated: event !== undefined || schemeOf(receiver).isAuthenticated(error),
      event: event?.event,
      eventId: event?.id,
      issuer: event?.issuer,
      deliveryId:
        event !== undefined && outcome === 'queued'
          ? internalsOf(event).reception?.identity
          : undefined,
    };
  }

  /** Sortable by time; the counter orders entries of one millisecond. */
  private nextId(at: number): string {
    this.counter = (this.counter + 1) % 36 ** 6;
    const digits = (value: number, length: number): string =>
      value.toString(36).padStart(length, '0');
    return `${digits(at, 9)}${digits(this.counter, 6)}${this.nonce}`;
  }

  private withContent(
    entry: InboxEntry,
    { request, event }: AnsweredRequest,
    inbox: ResolvedInbox,
  ): () => Promise<InboxEntry> {
    const rawHeaders = rawHeadersOf(nodeRequest(request));
    const kept = inbox.payload && event !== undefined ? payloadOf(event, inbox) : undefined;
    return async () => {
      const payload = await kept;
      return this.redacted(entry, { rawHeaders, payload }, inbox);
    };
  }

  private refusedEntry(
    entry: InboxEntry,
    { request, receiver, error }: AnsweredRequest,
    inbox: ResolvedInbox,
  ): () => Promise<InboxEntry> {
    const node = nodeRequest(request);
    const incoming = fromNodeRequest(node, { kind: 'consumed' });
    const rawHeaders = rawHeadersOf(node);
    return async () => {
      const { event, id: eventId, issuer, kid } = schemeOf(receiver).claims(incoming);
      const claimed = { ...entry, event, eventId, issuer, kid };
      const known = this.redacted(claimed, { rawHeaders }, inbox);
      if (receiver === undefined || !isWebhookError(error) || !this.mayExplain()) return known;
      const explanation = await explainRequest(incoming, receiver, error);
      // The keys may have changed since.
      return explanation.code === error.code ? { ...known, explanation } : known;
    };
  }

  /** An entry with the headers and the payload that the application wants to keep. */
  private redacted(
    entry: InboxEntry,
    {
      rawHeaders,
      payload,
    }: { readonly rawHeaders: readonly string[] } & Pick<InboxContent, 'payload'>,
    { headers, redact }: ResolvedInbox,
  ): InboxEntry {
    if (!headers && payload === undefined) return entry;
    try {
      const harmless = headers ? harmlessHeaders(rawHeaders, this.credentialHeaders) : undefined;
      const kept = redact({ headers: harmless, payload }, entry);
      return { ...entry, headers: kept?.headers, payload: kept?.payload };
    } catch {
      return entry;
    }
  }

  private mayExplain(): boolean {
    const { explain, clock } = this.inbox!;
    if (!explain) return false;
    const now = clock.now();
    if (Math.abs(now - this.explainedSince) >= 1_000) {
      this.explainedSince = now;
      this.explained = 0;
    }
    return ++this.explained <= MAX_EXPLAINED;
  }

  private logOutage(error: unknown): void {
    const why = isWebhookError(error) ? `${error.code}: ${error.message}` : errorName(error);
    quietly(() =>
      this.logger.warn(
        `The inbox store failed (${why}). Webhooks are received as before; requests that the store cannot accept are not recorded.`,
      ),
    );
  }
}

/** Bytes that the headers and the payload of an entry take until it is written, at most. */
function contentBytes(
  { request }: AnsweredRequest,
  { size }: InboxEntry,
  { headers, payload, maxPayloadBytes }: ResolvedInbox,
): number {
  const node = nodeRequest(request);
  const ofHeaders = rawHeadersOf(node).reduce((sum, one) => sum + one.length, 0);
  // Inline data is in the token, which is a header.
  const ofBody = node.method === 'HEAD' ? ofHeaders : (size ?? maxPayloadBytes);
  return (headers ? ofHeaders : 0) + (payload ? Math.min(ofBody, maxPayloadBytes) : 0);
}

/** How requests of a receiver are signed; as tokens, if none was chosen yet. */
function schemeOf(receiver: AnsweredRequest['receiver']): WebhookScheme {
  return receiver?.scheme ?? webhookToken;
}

export function isEntryId(id: string): boolean {
  return /^[0-9a-z]{15}[0-9a-f]{8}$/.test(id);
}

function outcomeOf({ answer, event, unhandled }: AnsweredRequest): InboxOutcome {
  switch (answer.situation) {
    case 'processed':
      return unhandled === true ? 'unhandled' : 'handled';
    case 'queued':
    case 'duplicate':
      return answer.situation;
    default:
      return event !== undefined && FAILURES.has(answer.situation) ? 'failed' : 'refused';
  }
}

/** The data of an event as it was sent, if it is small enough and in memory. Never rejects: it is awaited only when it is written. */
async function payloadOf(
  event: WebhookEvent,
  { maxPayloadBytes }: ResolvedInbox,
): Promise<InboxContent['payload']> {
  if (isReadOnDemand(event)) return undefined;
  const { contentType = 'application/json', data } = event;
  try {
    const bytes = Buffer.isBuffer(data) ? data : await jsonOf(event);
    return bytes.length > maxPayloadBytes ? undefined : { contentType, bytes };
  } catch {
    // A handler has changed inline data into something that is not JSON.
    return undefined;
  }
}

async function jsonOf(event: WebhookEvent): Promise<Buffer> {
  const body = await event.rawBody();
  return body.length > 0 || event.data === undefined
    ? body
    : Buffer.from(JSON.stringify(event.data));
}

function harmlessHeaders(
  raw: readonly string[],
  credentials: ReadonlySet<string>,
): [string, string][] {
  const headers: [string, string][] = [];
  for (let i = 0; i + 1 < raw.length; i += 2) {
    const [name, value] = [raw[i]!, raw[i + 1]!];
    if (CREDENTIAL.test(name) || credentials.has(name.toLowerCase())) continue;
    // The query of an address may hold a credential too.
    const isAddress = /referer|(?:ur[il]|path)$/i.test(name);
    headers.push([name, isAddress ? value.replace(/[?#].*$/s, '') : value]);
  }
  return headers;
}
