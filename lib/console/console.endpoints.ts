import { Injectable } from '@nestjs/common';
import { WebhookClock } from '../clock/webhook-clock.js';
import type { WebhookDeliveryStats } from '../deliveries/delivery-view.js';
import { WebhookDeliveries } from '../deliveries/webhook.deliveries.js';
import { WebhookEndpoints } from '../endpoints/webhook.endpoints.js';
import { isWebhookError } from '../errors/webhook.error.js';
import type { WebhookEndpointView } from '../endpoints/webhook-endpoint.interface.js';
import type { JsonSchema, WebhookEventCatalog } from '../events/event-catalog.js';
import { readArgument } from '../options/read-options.js';
import { ConsoleActivity } from './console-activity.js';
import { ConsoleStatistics } from './console-statistics.js';
import type { CreatedEndpointAnswer, EndpointPatch } from './console-api.js';
import {
  ENDPOINT_PATCH,
  invalid,
  NEW_ENDPOINT,
  readPage,
  readQuery,
  readTenant,
  ROTATION,
  TEST_EVENT,
} from './console-input.js';
import {
  act,
  type ConsoleCall,
  type ConsoleRoute,
  optional,
  PAGE_QUERY,
  read,
  readEach,
  scopeOf,
} from './console-route.js';
import { type ConsoleAccess, requireCapabilities } from './console-session.js';
import { ConsoleHealth, type EndpointHealth } from './console-health.js';
import { endpointRow, shownUrl } from './console-views.js';

/** Endpoints with missed or waiting deliveries whose health is read for the overview. */
const MAX_CHECKED = 40;
const MAX_BLOCKED = 500;
const MAX_ATTENTION = 20;
/** Calls a minute that change endpoints, which look up names or read waiting deliveries. */
const CHANGES_PER_MINUTE = 60;
type Standing = WebhookDeliveryStats['endpoints'][number];
const WORST: readonly EndpointHealth['state'][] = ['failing', 'disabled', 'paused'];

@Injectable()
export class ConsoleEndpoints {
  readonly routes: readonly ConsoleRoute[] = [
    read('event-types', ({ query }) => this.eventTypes(query)),
    read('endpoints', (call) => this.endpointList(call)),
    read('endpoints/:id', ({ id, access }) => this.endpoint(id, access)),
    read('endpoints/:id/blocked-keys', (call) => this.blockedKeys(call)),
    read('endpoints/:id/format', async ({ id, access }) =>
      this.endpoints.format(id, scopeOf(access)),
    ),
    {
      ...act('POST', 'endpoints', ['manage-endpoints', 'manage-secrets'], (call) =>
        this.createEndpoint(call),
      ),
      status: 201,
      perMinute: CHANGES_PER_MINUTE,
      action: (_call, answer) => ({
        action: 'endpoint.create',
        target: (answer as CreatedEndpointAnswer | undefined)?.endpoint.id,
        tenant: (answer as CreatedEndpointAnswer | undefined)?.endpoint.tenant,
      }),
    },
    this.change('PATCH', '', 'update', (call) => this.updateEndpoint(call)),
    this.change('DELETE', '', 'delete', async ({ id, access }) =>
      this.endpoints.delete(id, scopeOf(access)),
    ),
    ...(['enable', 'disable', 'pause', 'resume'] as const).map((step) => ({
      ...this.change('POST', `/${step}`, step, async ({ id, access }) =>
        this.changed(await this.endpoints[step](id, scopeOf(access)), access),
      ),
      isRead: true,
    })),
    {
      ...this.change('POST', '/test', 'test', async ({ id, access, body }) => {
        const { event } = readArgument(TEST_EVENT, body);
        const scope = scopeOf(access);
        return this.endpoints.test(id, event === undefined ? scope : { ...scope, event });
      }),
      perMinute: 10,
    },
    {
      ...this.change('POST', '/rotate-key', 'rotate-key', (call) => this.rotateKey(call)),
      needs: ['manage-secrets'],
    },
  ];

  constructor(
    private readonly endpoints: WebhookEndpoints,
    private readonly health: ConsoleHealth,
    private readonly activity: ConsoleActivity,
    private readonly statistics: ConsoleStatistics,
    private readonly deliveries: WebhookDeliveries,
    private readonly clock: WebhookClock,
  ) {}

  async endpointList({ query, access }: ConsoleCall) {
    const { tenant, after, limit } = readQuery(query, ['tenant', ...PAGE_QUERY]);
    const scope = readTenant(access, tenant);
    const page = readPage({ after, limit });
    const { endpoints, next } = await this.endpoints.list({ ...scope, ...page });
    return { items: await this.rows(endpoints, access, scope), next };
  }

  async blockedKeys({ id, access, query }: ConsoleCall) {
    readQuery(query, []);
    const { tenant } = await this.endpoints.get(id, scopeOf(access));
    const filter = { endpointId: id, keyState: 'blocking' as const };
    const options = { ...scopeOf({ tenant }), limit: MAX_BLOCKED };
    const { deliveries } = await this.deliveries.list(filter, options);
    const own = deliveries.filter((one) => one.tenant === tenant);
    const items = own.map(({ id: deliveryId, orderingKey, updatedAt, ...delivery }) => {
      const { event, failureReason } = delivery;
      return { orderingKey: orderingKey!, deliveryId, event, since: updatedAt, failureReason };
    });
    return { items };
  }

  private async ownerOf(id: string): Promise<string | undefined> {
    return (await this.endpoints.get(id)).tenant;
  }

  async eventTypes(query: URLSearchParams) {
    readQuery(query, []);
    const events = await optional(async () => this.endpoints.definedEvents());
    const items = events?.names.map((event) => {
      const { description, version, deprecated, examples } = events.find(event)!;
      return {
        event,
        description,
        version,
        /** `true`, or a sentence that says what to use instead. */
        deprecated,
        example: examples?.[0],
        /** A JSON Schema, draft 2020-12; absent if there is none, or if it cannot be converted. */
        schema: schemaOf(events, event),
      };
    });
    return { items: items ?? [] };
  }

  /** The endpoints that need attention most, worst first. */
  async attention(access: ConsoleAccess, scope: { tenant?: string }) {
    const rows = await this.troubled(access, scope, MAX_CHECKED);
    return rows.slice(0, MAX_ATTENTION);
  }

  /**
   * The endpoints with missed or waiting deliveries that fail, are disabled or paused, worst first.
   *
   * @param most - endpoints whose health is read: those with most missed deliveries of the last day, then with most that wait
   */
  async troubled(access: ConsoleAccess, scope: { tenant?: string }, most = Infinity) {
    const [stats, lastDay] = await Promise.all([
      this.statistics.stats({}, scope),
      this.statistics.lastDay(scope),
    ]);
    const nameOf = (one: Standing): string => JSON.stringify([one.endpointId, one.tenant]);
    const missed = new Map(lastDay?.endpoints.map((one) => [nameOf(one), one.dead]));
    const recent = (one: Standing): number => missed.get(nameOf(one)) ?? 0;
    const checked = (stats?.endpoints ?? [])
      .filter(({ endpointId, pending, dead }) => endpointId !== undefined && pending + dead > 0)
      .toSorted((a, b) => recent(b) - recent(a) || b.pending - a.pending || b.dead - a.dead)
      .slice(0, most);
    const views = await readEach(checked, async ({ endpointId, tenant }) =>
      this.endpoints
        .get(endpointId!, scopeOf({ tenant }))
        // It was deleted, or is no longer configured.
        .catch(() => undefined),
    );
    const found = new Map(views.flatMap((view) => (view === undefined ? [] : [[view.id, view]])));
    const rows = await this.rows([...found.values()], access, scope);
    return rows
      .filter(({ health }) => health.state !== 'healthy' && health.state !== 'idle')
      .toSorted((a, b) => WORST.indexOf(a.health.state) - WORST.indexOf(b.health.state));
  }

  /** As the API shows it; `undefined` if it does not exist. */
  async find(id: string, access: ConsoleAccess) {
    return ifKnown(this.endpoint(id, access));
  }

  async ofTenant(tenant: string): Promise<string[]> {
    const ids: string[] = [];
    let after: string | undefined;
    do {
      const page = await this.endpoints.list({ tenant, after, limit: 1_000 });
      ids.push(...page.endpoints.filter(({ source }) => source === 'store').map(({ id }) => id));
      after = page.next;
    } while (after !== undefined);
    return ids;
  }

  /** The URL of an endpoint as the API shows it; `undefined` if it does not exist. */
  async urlOf(id: string, access: ConsoleAccess): Promise<string | undefined> {
    const view = await ifKnown(this.endpoints.get(id, scopeOf(access)));
    return view && shownUrl(view.url, showsQuery(access));
  }

  private async endpoint(id: string, access: ConsoleAccess) {
    return this.row(await this.endpoints.get(id, scopeOf(access)), access);
  }

  private async row(view: WebhookEndpointView, access: ConsoleAccess) {
    const [row] = await this.rows([view], access, readTenant(access, undefined), view.id);
    return row!;
  }

  /** @param endpointId - if all are this one, so that only its deliveries are counted */
  private async rows(
    views: readonly WebhookEndpointView[],
    access: ConsoleAccess,
    scope: { readonly tenant?: string },
    endpointId?: string,
  ) {
    const [stats, lastDay] = await Promise.all([
      this.statistics.stats(endpointId === undefined ? {} : { endpointId }, scope),
      this.statistics.lastDay(scope),
    ]);
    const showQuery = showsQuery(access);
    return readEach(views, async (view) => {
      const circuit = await this.endpoints.circuit(view.id, scopeOf(access));
      const health = await this.health.of(view, circuit, stats, lastDay);
      return { ...endpointRow(view, { showQuery, now: this.clock.now() }), health };
    });
  }

  /** An endpoint after a change, which must not fail because its health cannot be read: the secret would be lost. */
  private async changed(
    view: WebhookEndpointView,
    access: ConsoleAccess,
  ): Promise<ReturnType<typeof endpointRow> & { readonly health?: EndpointHealth }> {
    try {
      return await this.row(view, { ...access, tenant: access.tenant ?? view.tenant });
    } catch {
      return endpointRow(view, { showQuery: showsQuery(access), now: this.clock.now() });
    }
  }

  async createEndpoint({ body, access }: ConsoleCall) {
    const { tenant, ...draft } = readArgument(NEW_ENDPOINT, body);
    // Ids are unique across tenants: choosing one would reveal which ids others have.
    if (access.tenant !== undefined && draft.id !== undefined) {
      throw invalid('id', 'cannot be chosen; leave it out');
    }
    requireOwnSettings(draft, access);
    const created = await this.endpoints.create({
      ...draft,
      ...readTenant(access, tenant),
    });
    const { id, tenant: owner } = created.endpoint;
    this.activity.changed('endpoints', id, owner);
    return { endpoint: await this.changed(created.endpoint, access), secret: created.secret! };
  }

  private async updateEndpoint({ id, body, access }: ConsoleCall) {
    const patch = readArgument(ENDPOINT_PATCH, body);
    requireOwnSettings(patch, access);
    return this.changed(await this.endpoints.update(id, patch, scopeOf(access)), access);
  }

  async rotateKey({ id, body, access }: ConsoleCall) {
    const rotation = readArgument(ROTATION, body);
    const { secret, ...key } = await this.endpoints.rotateKey(id, rotation, scopeOf(access));
    return { ...key, secret: secret! };
  }

  /** A call that changes an endpoint. @param below - the end of its path */
  private change(
    method: ConsoleRoute['method'],
    below: string,
    step: 'update' | 'delete' | 'enable' | 'disable' | 'pause' | 'resume' | 'test' | 'rotate-key',
    run: ConsoleRoute['run'],
  ): ConsoleRoute {
    return {
      ...act(method, `endpoints/:id${below}`, ['manage-endpoints'], run),
      perMinute: CHANGES_PER_MINUTE,
      owner: ({ id }) => this.ownerOf(id),
      action: ({ id }) => ({ action: `endpoint.${step}`, target: id }),
    };
  }
}

function showsQuery({ capabilities }: ConsoleAccess): boolean {
  return capabilities.includes('manage-endpoints');
}

/** `undefined` if the endpoint does not exist. */
export async function ifKnown<T>(found: Promise<T>): Promise<T | undefined> {
  try {
    return await found;
  } catch (error) {
    if (isWebhookError(error, 'unknown_endpoint')) return undefined;
    throw error;
  }
}

/** The number of attempts is the load of the application, so partners do not choose it. Limits only lower it. */
function requireOwnSettings({ retry, credentials }: EndpointPatch, access: ConsoleAccess): void {
  if (access.kind === 'portal' && retry !== undefined)
    throw invalid('retry', 'is set by operators');
  if (credentials !== undefined) requireCapabilities(access, ['manage-secrets']);
}

/** Absent if the library of the schema cannot convert it. */
function schemaOf(events: WebhookEventCatalog, event: string): JsonSchema | undefined {
  try {
    return events.jsonSchema(event);
  } catch {
    return undefined;
  }
}
