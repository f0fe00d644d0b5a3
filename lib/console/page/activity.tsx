import type { JSX } from 'preact';
import type { ActivityList, ActivityRow } from '../console-api.js';
import { Pill, Time, Title, type Tone } from './components.js';
import { useLoaded } from './live.js';
import { linkTo, type ViewProps } from './route.js';
import { SearchBar } from './search.js';
import { List } from './table.js';
import { reasonText, STRINGS } from './strings.js';

const TEXT = STRINGS.activity;
const TONES: Record<ActivityRow['outcome'], Tone> = {
  done: 'good',
  failed: 'bad',
  running: 'wait',
  cancelled: 'plain',
};

/** What users did, and what happened to endpoints; in the portal, to those of its tenant. */
export function Activity({ session, route: { query } }: ViewProps): JSX.Element {
  const isPortal = session.kind === 'portal';
  const { tenant = query['tenant'] } = session;
  const loaded = useLoaded<ActivityList>('activity', ['activity'], { ...query, tenant });
  return (
    <>
      <Title text={STRINGS.nav.activity} />
      <p class="intro">{isPortal ? TEXT.introPortal : TEXT.intro}</p>
      <SearchBar
        page="activity"
        rows={loaded.data?.items}
        filters={[
          { name: 'action', label: TEXT.action, choices: TEXT.actions },
          { name: 'target', label: TEXT.target, suggest: 'target', accepts: () => true },
          !isPortal && { name: 'tenant', label: STRINGS.labels.tenant, suggest: 'tenant' },
        ]}
        query={query}
        hasTime={false}
      />
      <List
        page="activity"
        query={query}
        loaded={loaded}
        empty={TEXT.empty}
        caption={STRINGS.nav.activity}
        columns={[
          {
            name: TEXT.action,
            cell: ({ action }) => <span title={action}>{TEXT.actions[action] ?? action}</span>,
          },
          { name: TEXT.target, cell: (row) => <Target of={row} /> },
          !isPortal && { name: STRINGS.labels.tenant, cell: (row) => row.tenant },
          { name: TEXT.actor, cell: ({ by, actor }) => actor ?? TEXT.by[by] },
          { name: TEXT.at, cell: ({ at }) => <Time at={at} /> },
          { name: STRINGS.labels.outcome, cell: (row) => <Outcome of={row} /> },
        ]}
      />
    </>
  );
}

/** A link to what an action was about, if it has a page. */
function Target({ of: { action, target, count } }: { of: ActivityRow }): JSX.Element | null {
  if (target === undefined) return count === undefined ? null : <>{TEXT.affected(count)}</>;
  const [kind] = action.split('.');
  const page = { delivery: 'deliveries', endpoint: 'endpoints', inbox: 'inbox' }[kind ?? ''];
  if (page === undefined || action === 'endpoint.delete') return <code>{target}</code>;
  return <a href={linkTo(page, target)}>{target}</a>;
}

function Outcome({ of: { outcome, code, reason, recovery } }: { of: ActivityRow }): JSX.Element {
  const details = [
    code,
    reason === undefined ? undefined : reasonText(reason),
    recovery && STRINGS.recover.progress(recovery.sent, recovery.total),
  ];
  return (
    <span>
      <Pill tone={TONES[outcome]}>{TEXT.outcomes[outcome]}</Pill>{' '}
      <small>{details.filter(Boolean).join(' · ')}</small>
    </span>
  );
}
