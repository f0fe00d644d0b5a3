import type { JSX } from 'preact';
import type { ActivityList } from '../console-api.js';
import { get } from './api.js';
import { Content, Empty, Pill, Time, Title } from './components.js';
import { useLoaded } from './live.js';
import { Table } from './table.js';
import { STRINGS } from './strings.js';

const TEXT = STRINGS.audit;

/** The last actions. */
export function Audit(): JSX.Element {
  const loaded = useLoaded('activity', ['activity'], (signal) =>
    get<ActivityList>('activity', undefined, signal),
  );
  return (
    <>
      <Title text={TEXT.title} />
      <p class="intro">{TEXT.intro}</p>
      <Content loaded={loaded}>
        {({ items }) =>
          items.length === 0 ? (
            <Empty text={TEXT.empty} />
          ) : (
            <Table
              caption={TEXT.title}
              rows={items}
              keyOf={({ id }) => id}
              columns={[
                { name: TEXT.at, cell: ({ at }) => <Time at={at} /> },
                { name: TEXT.action, cell: ({ action }) => <code>{action}</code> },
                { name: TEXT.actor, cell: ({ actor }) => actor },
                { name: TEXT.target, cell: ({ target }) => target },
                { name: TEXT.count, isNumber: true, cell: ({ count }) => count },
                {
                  name: TEXT.outcome,
                  cell: ({ outcome, code }) => (
                    <Pill tone={outcome === 'failed' ? 'bad' : 'good'}>
                      {code ?? TEXT.outcomes[outcome]}
                    </Pill>
                  ),
                },
              ]}
            />
          )
        }
      </Content>
    </>
  );
}
