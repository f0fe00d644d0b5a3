import type { JSX } from 'preact';
import type { ConsoleSession, DeadLetterList, DeadLetterRow, RetryAnswer } from '../console-api.js';
import { act, get } from './api.js';
import {
  Content,
  Pager,
  Table,
  Time,
  useNotices,
  useSelection,
  type Selection,
} from './components.js';
import { useLoaded } from './live.js';
import type { Route } from './route.js';
import { STRINGS } from './strings.js';

const TEXT = STRINGS.deadLetters;

/** Events whose handlers failed in every run. */
export function DeadLetters({
  session,
  route: { query },
}: {
  session: ConsoleSession;
  route: Route;
}): JSX.Element {
  const selection = useSelection();
  const notices = useNotices();
  const loaded = useLoaded(JSON.stringify(query), ['inbox'], (signal) =>
    get<DeadLetterList>('dead-letters', query, signal),
  );
  const mayRetry = session.capabilities.includes('redeliver');
  const retry = (ids: readonly string[]): void =>
    void notices.run(async () => {
      const { retried } = await act<RetryAnswer>('POST', 'dead-letters/retry', { ids });
      selection.clear();
      loaded.reload();
      return TEXT.retried(retried.length);
    });
  return (
    <>
      <h1>{TEXT.title}</h1>
      <p>{TEXT.intro}</p>
      {notices.element}
      <Content loaded={loaded}>
        {({ items, next }) => {
          const chosen = selection.among(items);
          return (
            <>
              {mayRetry && (
                <div class="buttons">
                  <button
                    type="button"
                    disabled={chosen.length === 0}
                    onClick={() => retry(chosen)}
                  >
                    {TEXT.retry}
                  </button>
                </div>
              )}
              <DeadLetterTable items={items} selection={mayRetry ? selection : undefined} />
              <Pager page="dead-letters" query={query} next={next} />
            </>
          );
        }}
      </Content>
    </>
  );
}

function DeadLetterTable({
  items,
  selection,
}: {
  items: readonly DeadLetterRow[];
  selection: Selection | undefined;
}): JSX.Element {
  return (
    <Table
      caption={TEXT.title}
      columns={[TEXT.event, TEXT.receiver, TEXT.runs, TEXT.reason, TEXT.received, TEXT.died]}
      rows={items.map((row) => ({
        key: row.id,
        cells: [
          row.event,
          row.receiver,
          row.runs,
          row.failureReason,
          <Time at={row.receivedAt} />,
          <Time at={row.diedAt} />,
        ],
      }))}
      selection={selection}
    />
  );
}
