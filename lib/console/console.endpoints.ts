import { Injectable } from '@nestjs/common';
import { WebhookDeliveries } from '../deliveries/webhook.deliveries.js';
import type { WebhookDeliveryStats } from '../deliveries/delivery-view.js';
import { WebhookEndpoints } from '../endpoints/webhook.endpoints.js';
import type { WebhookEndpointView } from '../endpoints/webhook-endpoint.interface.js';
import { ConsoleActivity } from './console-activity.js';
import { ConsoleStatistics } from './console-statistics.js';
import type {
  CreatedEndpointAnswer,
  EndpointList,
  EndpointRow,
  RotatedKeyAnswer,
  TestEventAnswer,
} from './console-api.js';
import {
  ENDPOINT_PATCH,
  invalid,
  NEW_ENDPOINT,
  readBody,
  readPage,
  readQuery,
  readTenant,
  ROTATION,
} from './console-input.js';
import {
  act,
  type ConsoleCall,
  type ConsoleRoute,
  optional,
  PAGE_QUERY,
  read,
  scopeOf,
} from './console-route.js';
import type { ConsoleAccess } from './console-session.js';
import { countsOf, endpointHealth, endpointRow } from './console-views.js';

/** The calls about endpoints. */
@Injectable()
export class ConsoleEndpoints {
  readonly routes: readonly ConsoleRoute[] = [
    read('endpoints', (call) => this.endpointList(call)),
    read('endpoints/:id', ({ id, access }) => this.endpoint(id, access)),
    {
      ...act('POST', 'endpoints', ['manage-endpoints', 'manage-secrets'], (call) =>
        this.createEndpoint(call),
      ),
      status: 201,
      action: (_call, answer) => ({
        action: 'endpoint.create',
        target: (answer as CreatedEndpointAnswer | undefined)?.endpoint.id,
      }),
    },
    {
      ...act('PATCH', 'endpoints/:id', ['manage-endpoints'], (call) => this.updateEndpoint(call)),
      action: ({ id }) => ({ action: 'endpoint.update', target: id }),
    },
    {
      ...act('DELETE', 'endpoints/:id', ['manage-endpoints'], async ({ id, access }) =>
        this.endpoints.delete(id, scopeOf(access)),
      ),
      action: ({ id }) => ({ action: 'endpoint.delete', target: id }),
    },
    ...(['enable', 'disable', 'pause', 'resume'] as const).map((step) => this.step(step)),
    {
      ...act(
        'POST',
        'endpoints/:id/test',
        ['manage-endpoints'],
        async ({ id, access }): Promise<TestEventAnswer> =>
          this.endpoints.test(id, scopeOf(access)),
      ),
      perMinute: 10,
      action: ({ id }) => ({ action: 'endpoint.test', target: id }),
    },
    {
      ...act('POST', 'endpoints/:id/rotate-key', ['manage-secrets'], (call) =>
        this.rotateKey(call),
      ),
      action: ({ id }) => ({ action: 'endpoint.rotate-key', target: id }),
    },
  ];

  constructor(
    private readonly endpoints: WebhookEndpoints,
    private readonly deliveries: WebhookDeliveries,
    private readonly activity: ConsoleActivity,
    private readonly statistics: ConsoleStatistics,
  ) {}

  private async endpointList({ query, access }: ConsoleCall): Promise<EndpointList> {
    const { tenant, after, limit } = readQuery(query, ['tenant', ...PAGE_QUERY]);
    const scope = readTenant(access, tenant);
    const page = readPage({ after, limit });
    const { endpoints, next } = await this.endpoints.list({ ...scope, ...page });
    const stats = await this.statistics.stats({}, scope);
    const items = await Promise.all(endpoints.map(async (one) => this.row(one, access, stats)));
    return { items, ...(next !== undefined && { next }) };
  }

  private async endpoint(id: string, access: ConsoleAccess): Promise<EndpointRow> {
    const view = await this.endpoints.get(id, scopeOf(access));
    const scope = readTenant(access, undefined);
    const stats = await this.statistics.stats({ endpointId: id }, scope);
    return this.row(view, access, stats);
  }

  private async row(
    view: WebhookEndpointView,
    access: ConsoleAccess,
    stats: WebhookDeliveryStats | undefined,
  ): Promise<EndpointRow> {
    const { id, tenant } = view;
    const own = tenant === undefined ? {} : { tenant };
    const [circuit, last] = await Promise.all([
      this.endpoints.circuit(id, scopeOf(access)),
      optional(() =>
        this.deliveries.list({ endpointId: id, status: 'delivered' }, { ...own, limit: 1 }),
      ),
    ]);
    const found = stats?.endpoints.find((one) => one.endpointId === id && one.tenant === tenant);
    const counts = stats && countsOf(found ?? { pending: 0, delivered: 0, dead: 0, lag: 0 });
    const health = endpointHealth(view, circuit, counts, last?.deliveries[0]?.updatedAt);
    return endpointRow(view, health, access.capabilities.includes('manage-endpoints'));
  }

  private async createEndpoint({ body, access }: ConsoleCall): Promise<CreatedEndpointAnswer> {
    const { tenant, ...draft } = readBody(body, NEW_ENDPOINT);
    // Ids are unique across tenants: choosing one would reveal which ids others have.
    if (access.tenant !== undefined && draft.id !== undefined) {
      throw invalid('id', 'cannot be chosen; leave it out');
    }
    const created = await this.endpoints.create({
      ...draft,
      ...readTenant(access, tenant),
    });
    const { id } = created.endpoint;
    const inScope = { ...access, tenant: access.tenant ?? created.endpoint.tenant };
    this.activity.changed('endpoints', id, created.endpoint.tenant);
    return { endpoint: await this.endpoint(id, inScope), secret: created.secret! };
  }

  private async updateEndpoint({ id, body, access }: ConsoleCall): Promise<EndpointRow> {
    await this.endpoints.update(id, readBody(body, ENDPOINT_PATCH), scopeOf(access));
    return this.endpoint(id, access);
  }

  private async rotateKey({ id, body, access }: ConsoleCall): Promise<RotatedKeyAnswer> {
    const rotation = readBody(body, ROTATION);
    const rotated = await this.endpoints.rotateKey(id, rotation, scopeOf(access));
    const { kid, signsFrom, secret } = rotated;
    return { kid, signsFrom: signsFrom.toISOString(), secret: secret! };
  }

  private step(step: 'enable' | 'disable' | 'pause' | 'resume'): ConsoleRoute {
    return {
      ...act('POST', `endpoints/:id/${step}`, ['manage-endpoints'], async ({ id, access }) => {
        await this.endpoints[step](id, scopeOf(access));
        return this.endpoint(id, access);
      }),
      action: ({ id }) => ({ action: `endpoint.${step}`, target: id }),
    };
  }
}
