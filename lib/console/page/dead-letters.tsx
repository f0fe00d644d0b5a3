import type { JSX } from 'preact';
import type { ConsoleSession, DeadLetterList, RetryAnswer } from '../console-api.js';
import { Action } from './action.js';
import { act } from './api.js';
import { Time, Title } from './components.js';
import { useLoaded } from './live.js';
import { linkBack, linkTo, type Route, type ViewProps } from './route.js';
import { Runs } from './runs.js';
import { List, useSelection } from './table.js';
import { reasonText, STRINGS } from './strings.js';

const TEXT = STRINGS.deadLetters;
const LABELS = STRINGS.labels;

/** Events whose handlers failed in every run, or one of them. */
export function DeadLetters({ session, route: { query, id } }: ViewProps): JSX.Element {
  if (id !== undefined) return <DeadLetter session={session} id={id} eventId={query['eventId']} />;
  return <DeadLetterTable session={session} query={query} />;
}

async function retry(ids: readonly string[]): Promise<string> {
  const { retried } = await act<RetryAnswer>('POST', 'dead-letters/retry', { ids });
  return TEXT.retried(retried.length);
}

function DeadLetterTable({
  session,
  query,
}: {
  session: ConsoleSession;
  query: Route['query'];
}): JSX.Element {
  const selection = useSelection();
  const loaded = useLoaded<DeadLetterList>('dead-letters', ['inbox'], query);
  const mayRetry = session.capabilities.includes('redeliver');
  const retryBar = ({ items }: DeadLetterList): JSX.Element | false => {
    const chosen = selection.among(items);
    return (
      mayRetry &&
      items.length > 0 && (
        <div class="bar">
          <Action
            label={TEXT.retry}
            disabled={chosen.length === 0}
            run={async () => {
              const text = await retry(chosen);
              selection.clear();
              loaded.reload();
              return text;
            }}
          />
          <span>{chosen.length > 0 && STRINGS.selected(chosen.length)}</span>
        </div>
      )
    );
  };
  return (
    <>
      <Title text={TEXT.title} />
      <p class="intro">{TEXT.intro}</p>
      <List
        page="dead-letters"
        query={query}
        loaded={loaded}
        empty={TEXT.empty}
        above={retryBar}
        caption={TEXT.title}
        selection={mayRetry ? selection : undefined}
        columns={[
          {
            name: LABELS.event,
            cell: ({ id, event, eventId }) => (
              <a href={linkTo('dead-letters', id, { eventId })}>{event}</a>
            ),
          },
          { name: LABELS.receiver, cell: ({ receiver }) => receiver },
          { name: TEXT.reason, cell: ({ failureReason }) => reasonText(failureReason) },
          { name: LABELS.runs, isNumber: true, cell: ({ runs }) => runs },
          { name: STRINGS.inbox.at, cell: ({ receivedAt }) => <Time at={receivedAt} /> },
          { name: TEXT.died, cell: ({ diedAt }) => <Time at={diedAt} /> },
        ]}
      />
    </>
  );
}

function DeadLetter({
  session,
  id,
  eventId,
}: {
  session: ConsoleSession;
  id: string;
  eventId: string | undefined;
}): JSX.Element {
  return (
    <>
      <a class="back" href={linkBack('dead-letters')}>
        {TEXT.back}
      </a>
      <Title text={TEXT.one} />
      <div class="buttons">
        {session.capabilities.includes('redeliver') && (
          <Action kind="main" label={STRINGS.inbox.retry} run={async () => retry([id])} />
        )}
        {session.features.inbox && (
          <a href={linkTo('inbox', undefined, { eventId, outcome: 'dead' })}>{TEXT.request}</a>
        )}
      </div>
      <Runs id={id} />
    </>
  );
}
