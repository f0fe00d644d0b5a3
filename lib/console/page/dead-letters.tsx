import type { JSX } from 'preact';
import type { DeadLetterList, RetryAnswer } from '../console-api.js';
import { Action } from './action.js';
import { act } from './api.js';
import { Time, Title } from './components.js';
import { useLoaded } from './live.js';
import { linkBack, linkTo, type ViewProps } from './route.js';
import { Runs } from './runs.js';
import { List, useSelection } from './table.js';
import { reasonText, STRINGS } from './strings.js';

const TEXT = STRINGS.deadLetters;
const LABELS = STRINGS.labels;

async function retry(ids: readonly string[]): Promise<string> {
  const { retried } = await act<RetryAnswer>('POST', 'dead-letters/retry', { ids });
  return TEXT.retried(retried.length);
}

/** Events whose handlers failed in every run. */
export function DeadLetters({ session, route: { query } }: ViewProps): JSX.Element {
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

export function DeadLetter({
  session,
  route: { query },
  id,
}: ViewProps & { id: string }): JSX.Element {
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
          <a href={linkTo('inbox', undefined, { eventId: query['eventId'], outcome: 'dead' })}>
            {TEXT.request}
          </a>
        )}
      </div>
      <Runs id={id} />
    </>
  );
}
