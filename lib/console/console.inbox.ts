import { Inject, Injectable } from '@nestjs/common';
import { readArgument } from '../options/read-options.js';
import { type WebhookInboxFilter, WebhookInbox } from '../receiver/inbox/webhook.inbox.js';
import type { ConsolePayload, RetryAnswer } from './console-api.js';
import { readPage, readQuery, readTimes, RETRY } from './console-input.js';
import { CONSOLE_OPTIONS, type ResolvedConsole } from './console-options.js';
import { ConsoleError } from './console-problem.js';
import {
  act,
  type ConsoleCall,
  type ConsoleRoute,
  ownOnly,
  PAGE_QUERY,
  read,
} from './console-route.js';
import { inboxDetails, inboxRow, shownAnswer, shownPayload } from './console-views.js';

const INBOX_QUERY = ['outcome', 'kind', 'receiver', 'code', 'event', 'eventId', 'issuer'] as const;

/** The calls about received requests and queued events, which belong to no tenant. */
@Injectable()
export class ConsoleInbox {
  readonly routes: readonly ConsoleRoute[] = [
    ownOnly(read('inbox', (call) => this.inboxList(call))),
    ownOnly(read('inbox/:id', async ({ id }) => this.inboxEntry(id))),
    ownOnly({
      ...read('inbox/:id/payload', async ({ id }) => this.inboxPayload(id)),
      needs: ['view', 'view-payload'],
      action: ({ id }) => ({ action: 'payload.view', target: id }),
    }),
    ownOnly({
      ...act('POST', 'inbox/:id/retry', ['redeliver'], async ({ id }) => this.retryEntry(id)),
      action: ({ id }) => ({ action: 'inbox.retry', target: id }),
    }),
    ownOnly(read('dead-letters', (call) => this.deadLetters(call))),
    ownOnly(read('dead-letters/:id/runs', (call) => this.runs(call))),
    ownOnly({
      ...act('POST', 'dead-letters/retry', ['redeliver'], (call) => this.retryDeadLetters(call)),
      action: (_call, answer) => ({
        action: 'inbox.retry',
        count: (answer as RetryAnswer | undefined)?.retried.length ?? 0,
      }),
    }),
  ];

  constructor(
    @Inject(CONSOLE_OPTIONS) private readonly options: ResolvedConsole,
    private readonly inbox: WebhookInbox,
  ) {}

  async inboxList({ query }: ConsoleCall) {
    const { after, limit, since, until, ...filter } = readQuery(query, [
      ...INBOX_QUERY,
      'since',
      'until',
      ...PAGE_QUERY,
    ]);
    const { entries, next } = await this.inbox.list(
      { ...(filter as WebhookInboxFilter), ...readTimes({ since, until }) },
      readPage({ after, limit }),
    );
    return { items: entries.map(inboxRow), next };
  }

  async inboxEntry(id: string) {
    const entry = await this.inbox.get(id);
    if (entry === undefined) throw unknownEntry();
    return inboxDetails(entry);
  }

  private async inboxPayload(id: string): Promise<ConsolePayload> {
    const entry = await this.inbox.get(id);
    if (entry?.payload === undefined) throw unknownEntry();
    const facts = { event: entry.event ?? '', source: 'inbox' as const };
    return shownPayload({ ...entry.payload, ...facts }, this.options.redact);
  }

  private async retryEntry(id: string) {
    if ((await this.inbox.get(id)) === undefined) throw unknownEntry();
    const retried = await this.inbox.retry(id);
    if (retried.length === 0) {
      throw new ConsoleError('not_retryable', 'The event is already handled, running or due.');
    }
    return this.inboxEntry(id);
  }

  async deadLetters({ query }: ConsoleCall) {
    const { receiver, after, limit } = readQuery(query, ['receiver', ...PAGE_QUERY]);
    const page = readPage({ after, limit });
    const { deadLetters: items, next } = await this.inbox.deadLetters({ receiver, ...page });
    return { items, next };
  }

  async runs({ id, access }: ConsoleCall) {
    const mayRead = access.capabilities.includes('view-payload');
    const facts = { event: '', source: 'inbox' as const };
    const runs = await this.inbox.runs(id);
    return {
      items: runs.map(({ attempt: run, at, durationMs, reason: failureReason, answer }) => ({
        run,
        at: new Date(at),
        durationMs,
        /** Absent if the run succeeded. */
        failureReason,
        /** What the handlers threw: names and messages. May quote the payload, so it needs `view-payload` too. */
        error: mayRead ? shownAnswer(answer, facts, this.options.redact) : undefined,
      })),
    };
  }

  private async retryDeadLetters({ body }: ConsoleCall): Promise<RetryAnswer> {
    const { ids } = readArgument(RETRY, body);
    return { retried: await this.inbox.retry(ids) };
  }
}

function unknownEntry(): ConsoleError {
  return new ConsoleError('unknown_entry', 'The entry does not exist, or is no longer kept.');
}
