import type { JSX } from 'preact';
import { useState } from 'preact/hooks';
import type { CreatedEndpointAnswer, EndpointList } from '../console-api.js';
import { act } from './api.js';
import { Time, Title } from './components.js';
import { EndpointForm, showSecret, type EndpointValues } from './endpoint-form.js';
import { number, percent } from './format.js';
import { HealthPill, healthText } from './health.js';
import { useLoaded } from './live.js';
import { linkTo, type ViewProps } from './route.js';
import { List } from './table.js';
import { reasonText, STRINGS } from './strings.js';

const TEXT = STRINGS.endpoints;

export function Endpoints({ session, route: { query } }: ViewProps): JSX.Element {
  const { capabilities, kind, tenant = query['tenant'] } = session;
  const [isAdding, setIsAdding] = useState(false);
  const topics = ['endpoints', 'deliveries'] as const;
  const loaded = useLoaded<EndpointList>('endpoints', topics, { ...query, tenant });
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
      <Title text={STRINGS.nav.endpoints}>
        {mayAdd && (
          <button type="button" class="main" onClick={() => setIsAdding(true)}>
            {TEXT.add}
          </button>
        )}
      </Title>
      <List
        page="endpoints"
        query={query}
        loaded={loaded}
        empty={TEXT.empty}
        emptyNext={mayAdd ? TEXT.emptyAdd : TEXT.emptyConfigure}
        caption={STRINGS.nav.endpoints}
        columns={[
          {
            name: STRINGS.labels.endpoint,
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
          kind === 'console' && { name: STRINGS.labels.tenant, cell: (row) => row.tenant },
          {
            name: TEXT.successRate,
            isNumber: true,
            cell: ({ health: { successRate24h: rate } }) =>
              rate === undefined ? '' : percent(rate),
          },
          {
            name: STRINGS.labels.waiting,
            isNumber: true,
            cell: ({ health }) => health.counts && number(health.counts.pending),
          },
          {
            name: STRINGS.status.dead,
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
      {isAdding && (
        <EndpointForm
          title={TEXT.add}
          session={session}
          onClose={() => setIsAdding(false)}
          onSave={add}
        />
      )}
    </>
  );
}
