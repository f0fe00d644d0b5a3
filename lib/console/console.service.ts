import { Inject, Injectable } from '@nestjs/common';
import { WebhookClock } from '../clock/webhook-clock.js';
import { isWebhookError } from '../errors/webhook.error.js';
import type { RedeliverOptions } from '../deliveries/delivery-query.js';
import { WebhookDeliveries } from '../deliveries/webhook.deliveries.js';
import { WebhookEndpoints } from '../endpoints/webhook.endpoints.js';
import { readArgument } from '../options/read-options.js';
import { isStorableTime } from '../options/rules.js';
import { WebhookInbox } from '../receiver/inbox/webhook.inbox.js';
import { ActivityLog } from './activity-log.js';
import type {
  ConsolePayload,
  ConsoleStats,
  DeliveryQuery,
  EraseAnswer,
  EraseRequest,
  LinkAnswer,
  RedeliverAnswer,
  RedeliverRequest,
  SkipAnswer,
} from './console-api.js';
import { ConsoleStatistics } from './console-statistics.js';
import {
  DELIVERY_QUERY,
  ERASE,
  invalid,
  readDeliveryFilter,
  readPage,
  readQuery,
  readRange,
  readTenant,
  REDELIVER,
  TENANT_LINK,
} from './console-input.js';
import { CONSOLE_OPTIONS, type ResolvedConsole } from './console-options.js';
import { ConsoleError } from './console-problem.js';
import {
  act,
  type ConsoleCall,
  type ConsoleRoute,
  isMissingPart,
  optional,
  ownOnly,
  PAGE_QUERY,
  read,
} from './console-route.js';
import { type ActionFacts, type ConsoleAccess, requireCapabilities } from './console-session.js';
import { activityRow, countsOf, shownAnswer, shownPayload } from './console-views.js';
import { ConsoleEndpoints, ifKnown } from './console.endpoints.js';
import { ConsoleInbox } from './console.inbox.js';
import { ConsoleRecovery } from './console.recovery.js';
import { WebhookPortal } from './webhook.portal.js';

/** All calls of the API. Each passes the tenant of its session to the library, which hides everything of others. */
@Injectable()
export class ConsoleService {
  readonly routes: readonly ConsoleRoute[];

  constructor(
    @Inject(CONSOLE_OPTIONS) private readonly options: ResolvedConsole,
    private readonly deliveries: WebhookDeliveries,
    private readonly endpoints: WebhookEndpoints,
    private readonly inbox: WebhookInbox,
    private readonly statistics: ConsoleStatistics,
    private readonly clock: WebhookClock,
    private readonly endpointCalls: ConsoleEndpoints,
    private readonly log: ActivityLog,
    private readonly portal: WebhookPortal,
    inboxCalls: ConsoleInbox,
    recovery: ConsoleRecovery,
  ) {
    this.routes = [
      read('overview', (call) => this.overview(call)),
      read('stats', (call) => this.stats(call)),
      read('deliveries', (call) => this.deliveryList(call)),
      read('deliveries/:id', (call) => this.delivery(call)),
      {
        ...read('deliveries/:id/payload', (call) => this.deliveryPayload(call)),
        needs: ['view', 'view-payload'],
        owner: (call) => this.ownerOf(call.id),
        action: ({ id }) => ({ action: 'payload.view', target: id }),
      },
      {
        ...act('POST', 'deliveries/redeliver', ['redeliver'], (call) => this.redeliver(call)),
        perMinute: 60,
        isRead: true,
        owner: (call) => this.ownerOfMany(call.body as RedeliverRequest),
        action: ({ body }, answer) => redeliverFacts(body as RedeliverRequest, answer),
      },
      {
        ...act('POST', 'deliveries/:id/skip', ['redeliver'], (call) => this.skip(call)),
        owner: (call) => this.ownerOf(call.id),
        action: ({ id }) => ({ action: 'delivery.skip', target: id }),
      },
      ownOnly({
        ...act('POST', 'tenants/:id/link', ['share'], (call) => this.linkTo(call)),
        action: ({ id }) => ({ action: 'tenant.link', tenant: id }),
      }),
      ownOnly({
        ...act('POST', 'tenants/:id/erase', ['erase'], (call) => this.erase(call)),
        action: ({ id, body }, answer) => eraseFacts(id, body as EraseRequest, answer),
      }),
      read('activity', (call) => this.activityList(call)),
      ...endpointCalls.routes,
      ...recovery.routes,
      ...inboxCalls.routes,
    ];
  }

  /** What the page may do, and which parts exist. */
  async session(access: ConsoleAccess) {
    const { kind, capabilities, tenant, actor, expiresAt, grant } = access;
    const { language = this.options.language, displayName, returnUrl } = grant ?? {};
    const isConsole = kind === 'console';
    return {
      kind,
      capabilities,
      /** The only tenant of a portal session. */
      tenant,
      /** Who acts, as the option `actor` names the user. */
      actor,
      /** Portal: when the session ends. */
      expiresAt,
      brand: this.options.brand,
      /** Language of the page, such as `de`: a BCP 47 tag. */
      language,
      /** Portal: the tenant's name for people; absent if the link has none. */
      displayName,
      /** Portal: where the partner came from, at an origin that the application allows; absent if the link has none. */
      returnUrl,
      /** Parts that exist; hide the others. */
      features: {
        /** The module publishes: overview and endpoints. */
        endpoints: await exists(() => this.endpoints.list({ limit: 1 })),
        /** The module publishes: deliveries and attempts. */
        deliveries: await exists(() => this.deliveries.list({}, { limit: 1 })),
        /** The application has defined its events. */
        eventTypes: (await optional(async () => this.endpoints.definedEvents())) !== undefined,
        /** Links to the portal can be made. */
        portal: isConsole && this.options.portal !== undefined,
        inbox: isConsole && this.inbox.features.inbox,
        /** A receiver acknowledges before it handles. */
        deadLetters: isConsole && this.inbox.features.deadLetters,
      },
      /** The server's time, from which the page counts: the clock of a browser may be wrong. */
      now: new Date(this.clock.now()),
    };
  }

  async overview({ query, access }: ConsoleCall) {
    const scope = readTenant(access, readQuery(query, ['tenant']).tenant);
    const stats = await this.statistics.stats({}, scope);
    const { inbox, deadLetters } = this.inbox.features;
    const isConsole = access.kind === 'console';
    return {
      /** Absent without a publisher. `pending` is the depth of the queue. */
      deliveries: stats && countsOf(stats),
      /** Endpoints with missed or waiting deliveries that are not healthy, worst first, at most 20. Absent without a publisher. */
      attention: stats && (await this.endpointCalls.attention(access, scope)),
      /** Absent without an inbox, and in the portal. `dropped`: too many arrived, so that they were not stored. */
      inbox: isConsole && inbox ? await this.inbox.counts() : undefined,
      /** Number of dead letters; absent without a queued receiver, and in the portal. */
      deadLetters: isConsole && deadLetters ? await this.inbox.deadLetterCount() : undefined,
    };
  }

  private async stats({ query, access }: ConsoleCall): Promise<ConsoleStats> {
    const { endpoint, tenant, ...range } = readQuery(query, [
      'from',
      'to',
      'step',
      'endpoint',
      'tenant',
    ]);
    const filter = endpoint === undefined ? {} : { endpointId: endpoint };
    const scope = readTenant(access, tenant);
    return this.statistics.series(readRange(range, this.clock.now()), filter, scope);
  }

  async deliveryList({ query, access }: ConsoleCall) {
    const { after, limit, tenant, ...filter } = readQuery(query, [
      ...DELIVERY_QUERY,
      ...PAGE_QUERY,
    ]);
    const { deliveries, next } = await this.deliveries.list(
      readDeliveryFilter(filter as DeliveryQuery),
      {
        ...readPage({ after, limit }),
        ...readTenant(access, tenant),
      },
    );
    return { items: deliveries, next };
  }

  async delivery({ id, access }: ConsoleCall) {
    const found = await this.deliveries.get(id, readTenant(access, undefined));
    if (found === undefined) throw unknownDelivery();
    const mayView = access.capabilities.includes('view-payload');
    const { event, tenant, endpointId } = found;
    const facts = { event, source: 'answer' as const, ...(tenant !== undefined && { tenant }) };
    const attempts = found.attempts.map(({ answer, ...attempt }) => ({
      ...attempt,
      /** The first 1024 bytes of the answer's body, redacted; only with the capability `view-payload`. Hostile. */
      answer: mayView ? shownAnswer(answer, facts, this.options.redact) : undefined,
    }));
    return {
      ...found,
      attempts,
      /** Where its requests go now; absent if its endpoint is deleted, and for a delivery to a URL. */
      url: endpointId && (await this.endpointCalls.urlOf(endpointId, access)),
    };
  }

  private async deliveryPayload({ id, access }: ConsoleCall): Promise<ConsolePayload> {
    const scope = readTenant(access, undefined);
    const [delivery, payload] = await Promise.all([
      this.deliveries.get(id, scope),
      this.deliveries.payload(id, scope),
    ]);
    if (delivery === undefined) throw unknownDelivery();
    if (delivery.payloadDropped === true || payload === undefined) throw payloadDropped();
    const { event, tenant } = delivery;
    const facts = { event, source: 'delivery' as const, ...(tenant !== undefined && { tenant }) };
    return shownPayload({ ...payload, ...facts }, this.options.redact);
  }

  private async redeliver({ body, access }: ConsoleCall): Promise<RedeliverAnswer> {
    const { ids, statuses, filter, dryRun, limit } = readArgument(REDELIVER, body);
    if (ids !== undefined) {
      const scope = { ...readTenant(access, undefined), dryRun };
      const items: RedeliverAnswer['items'][number][] = [];
      for (const [id, shown] of new Map(ids.map((one, index) => [one, statuses?.[index]]))) {
        const unlessDelivered = shown !== undefined && shown !== 'delivered';
        try {
          items.push(await this.redeliverOne(id, { ...scope, unlessDelivered }));
        } catch (error) {
          // An error would hide what was sent, and a repeated call would send it again. A call with the rest reports the error.
          if (items.some(({ redelivered }) => redelivered)) return { dryRun, items, more: true };
          throw error;
        }
      }
      return { dryRun, items, more: false };
    }
    const { tenant, ...wanted } = filter!;
    const scope = readTenant(access, tenant);
    const chosen = { ...readDeliveryFilter(wanted), ...scope };
    // The session's own tenant alone would select everything.
    const isEmpty = Object.values(filter!).every((one) => one === undefined);
    if (isEmpty) throw invalid('filter', 'must have a member');
    const found = await this.deliveries.redeliver(chosen, {
      ...scope,
      dryRun,
      limit,
    });
    return { dryRun, items: found.deliveries, more: found.more };
  }

  private async redeliverOne(
    id: string,
    options: RedeliverOptions,
  ): Promise<RedeliverAnswer['items'][number]> {
    try {
      const { deliveries } = await this.deliveries.redeliver(id, options);
      return deliveries[0]!;
    } catch (error) {
      if (!isWebhookError(error, 'unknown_delivery')) throw error;
      return { id, redelivered: false, reason: 'unknown_delivery' };
    }
  }

  private async skip({ id, access }: ConsoleCall): Promise<SkipAnswer> {
    return { skipped: await this.deliveries.skip(id, readTenant(access, undefined)) };
  }

  private linkTo({ id: tenant, body, access }: ConsoleCall): LinkAnswer {
    const { capabilities = ['view'], expiresIn } = readArgument(TENANT_LINK, body);
    // An operator cannot pass on a capability that it lacks.
    requireCapabilities(access, capabilities);
    if (this.options.portal === undefined) {
      throw new ConsoleError('unavailable', 'There is no portal: set the option "portal".');
    }
    return { url: this.portal.link({ tenant, capabilities, expiresIn }).href };
  }

  /** Endpoints first, so that nothing new is recorded. */
  private async erase({ id: tenant, body }: ConsoleCall): Promise<EraseAnswer> {
    const { dryRun } = readArgument(ERASE, body);
    const endpoints = await this.endpointCalls.ofTenant(tenant);
    if (dryRun) {
      const { pending, delivered, dead } = await this.deliveries.stats({}, { tenant });
      const deliveries = pending + delivered + dead;
      return { dryRun, endpoints: endpoints.length, deliveries, isComplete: false };
    }
    // A partner may delete one at the same time.
    for (const id of endpoints) await ifKnown(this.endpoints.delete(id, { tenant }));
    const { erased: deliveries, isComplete } = await this.deliveries.erase({ tenant });
    return { dryRun, endpoints: endpoints.length, deliveries, isComplete };
  }

  async activityList({ query, access }: ConsoleCall) {
    const { tenant, after, limit, ...filter } = readQuery(query, [
      'tenant',
      'action',
      'target',
      ...PAGE_QUERY,
    ]);
    const scope = readTenant(access, tenant);
    const page = readPage({ after, limit });
    const place = after === undefined ? undefined : readPlace(after);
    const found = await this.log.list(
      { ...filter, ...scope },
      { limit: page.limit + 1, after: place },
    );
    const items = found.slice(0, page.limit);
    const isConsole = access.kind === 'console';
    const { at, id } = items.at(-1) ?? {};
    const isLast = found.length === items.length;
    return {
      items: items.map((entry) => activityRow(entry, isConsole)),
      next: isLast ? undefined : Buffer.from(JSON.stringify([at, id])).toString('base64url'),
    };
  }

  private async ownerOf(deliveryId: string): Promise<string | undefined> {
    return (await this.deliveries.get(deliveryId))?.tenant;
  }

  private async ownerOfMany({ ids, filter }: RedeliverRequest): Promise<string | undefined> {
    if (ids?.length === 1) return this.ownerOf(ids[0]!);
    if (filter?.endpoint === undefined) return filter?.tenant;
    return (await this.endpoints.get(filter.endpoint)).tenant;
  }
}

/** @throws {@link WebhookDeliveryError} `invalid_option` */
function readPlace(after: string): { readonly at: number; readonly id: string } {
  try {
    const [at, id] = JSON.parse(Buffer.from(after, 'base64url').toString()) as unknown[];
    if (isStorableTime(at) && typeof id === 'string') return { at, id };
  } catch {
    // No JSON.
  }
  throw invalid('after', 'must be "next" of the previous page');
}

/** Whether a part exists; one whose store is away does. */
async function exists(read: () => Promise<unknown>): Promise<boolean> {
  try {
    await read();
    return true;
  } catch (error) {
    return !isMissingPart(error);
  }
}

function eraseFacts(tenant: string, body: EraseRequest, answer: unknown): ActionFacts | undefined {
  if (body?.dryRun) return undefined;
  const { deliveries = 0 } = (answer as EraseAnswer | undefined) ?? {};
  return { action: 'tenant.erase', tenant, count: deliveries };
}

function redeliverFacts(body: RedeliverRequest, answer: unknown): ActionFacts | undefined {
  if (body?.dryRun) return undefined;
  const done = (answer as RedeliverAnswer | undefined)?.items.filter((one) => one.redelivered);
  if (done?.length === 0) return undefined;
  // The body of a refused request may be anything.
  const [only, ...others]: readonly unknown[] = Array.isArray(body?.ids) ? body.ids : [];
  const target = typeof only === 'string' && others.length === 0 ? only : undefined;
  return { action: 'delivery.redeliver', target, count: done?.length ?? 0 };
}

function payloadDropped(): ConsoleError {
  return new ConsoleError(
    'payload_dropped',
    'The queue has dropped the payload of this delivery: raise keepPayloads to keep payloads for longer.',
  );
}

function unknownDelivery(): ConsoleError {
  return new ConsoleError(
    'unknown_delivery',
    'There is no delivery with this id, or it was pruned.',
  );
}
