import type { JSX } from 'preact';
import { useState } from 'preact/hooks';
import type { CreatedEndpointAnswer, EndpointList } from '../console-api.js';
import { act, get } from './api.js';
import { Content, NoEntries, Pager, Time, Title } from './components.js';
import { EndpointForm, showSecret, type EndpointValues } from './endpoint-form.js';
import { number, percent } from './format.js';
import { HealthPill, healthText } from './health.js';
import { useLoaded } from './live.js';
import { linkTo, type ViewProps } from './route.js';
import { Table } from './table.js';
import { reasonText, STRINGS } from './strings.js';

const TEXT = STRINGS.endpoints;

export function Endpoints({ session, route: { query } }: ViewProps): JSX.Element {
  const { capabilities, kind, tenant = query['tenant'] } = session;
  const [isAdding, setIsAdding] = useState(false);
  const loaded = useLoaded(JSON.stringify(query), ['endpoints', 'deliveries'], (signal) =>
    get<EndpointList>('endpoints', { ...query, tenant }, signal),
  );
  const mayAdd =
    capabilities.includes('manage-endpoints') && capabilities.includes('manage-secrets');
  const add = async (values: EndpointValues): Promise<void> => {
    const body = { ...values, tenant: session.tenant ?? values.tenant };
    const created = await act<CreatedEndpointAnswer>('POST', 'endpoints', body);
    showSecret(created.secret);
    loaded.reload();
  };
  return (
    <>
      <Title text={TEXT.title}>
        {mayAdd && (
          <button type="button" class="main" onClick={() => setIsAdding(true)}>
            {TEXT.add}
          </button>
        )}
      </Title>
      <Content loaded={loaded}>
        {({ items, next }) => (
          <>
            {items.length === 0 ? (
              <NoEntries
                page="endpoints"
                query={query}
                text={TEXT.empty}
                next={mayAdd ? TEXT.emptyAdd : TEXT.emptyConfigure}
              />
            ) : (
              <Table
                caption={TEXT.title}
                rows={items}
                keyOf={({ id }) => id}
                columns={[
                  {
                    name: TEXT.endpoint,
                    cell: ({ id, description, url }) => (
                      <span class="who">
                        <a href={linkTo('endpoints', id)}>{description ?? id}</a>
                        <small>{description === undefined ? url : `${id} · ${url}`}</small>
                      </span>
                    ),
                  },
                  {
                    name: TEXT.health,
                    cell: ({ health }) => (
                      <span title={healthText(health)}>
                        <HealthPill health={health} />{' '}
                        {health.state === 'failing' && <small>{reasonText(health.reason)}</small>}
                      </span>
                    ),
                  },
                  kind === 'console' && { name: TEXT.tenant, cell: (row) => row.tenant },
                  {
                    name: TEXT.successRate,
                    isNumber: true,
                    cell: ({ health: { successRate24h: rate } }) =>
                      rate === undefined ? '' : percent(rate),
                  },
                  {
                    name: TEXT.waiting,
                    isNumber: true,
                    cell: ({ health }) => health.counts && number(health.counts.pending),
                  },
                  {
                    name: TEXT.missed,
                    isNumber: true,
                    cell: ({ id, health: { counts } }) =>
                      counts === undefined || counts.dead === 0 ? (
                        '0'
                      ) : (
                        <a href={linkTo('deliveries', undefined, { endpoint: id, status: 'dead' })}>
                          {number(counts.dead)}
                        </a>
                      ),
                  },
                  {
                    name: TEXT.lastSuccess,
                    cell: ({ health: { lastSuccessAt } }) =>
                      lastSuccessAt === undefined ? '' : <Time at={lastSuccessAt} />,
                  },
                ]}
              />
            )}
            <Pager page="endpoints" query={query} next={next} />
          </>
        )}
      </Content>
      {isAdding && (
        <EndpointForm
          title={TEXT.addTitle}
          session={session}
          onClose={() => setIsAdding(false)}
          onSave={add}
        />
      )}
    </>
  );
}
