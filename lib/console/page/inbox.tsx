import type { JSX } from 'preact';
import type {
  ConsoleExplanation,
  ConsoleSession,
  InboxDetails,
  InboxList,
  InboxOutcome,
  InboxRow,
} from '../console-api.js';
import { act, get } from './api.js';
import {
  Badge,
  Content,
  Facts,
  FilterForm,
  Pager,
  Table,
  Time,
  useNotices,
  type Filter,
  type Tone,
} from './components.js';
import { bytes } from './format.js';
import { useLoaded } from './live.js';
import { Payload } from './payload.js';
import { linkBack, linkTo, type Route } from './route.js';
import { STRINGS } from './strings.js';

const TEXT = STRINGS.inbox;
const TONES: Record<InboxOutcome, Tone> = {
  handled: 'good',
  queued: 'wait',
  duplicate: 'plain',
  unhandled: 'plain',
  failed: 'bad',
  dead: 'bad',
  refused: 'bad',
};

const FILTERS: readonly Filter[] = [
  { name: 'kind', label: TEXT.kind, choices: TEXT.kinds },
  { name: 'outcome', label: TEXT.outcome, choices: TEXT.outcomes },
  { name: 'code', label: TEXT.code },
  { name: 'event', label: TEXT.event },
  { name: 'issuer', label: TEXT.issuer },
];

/** The list of received requests. */
export function Inbox({ route: { query } }: { route: Route }): JSX.Element {
  const loaded = useLoaded(JSON.stringify(query), ['inbox'], (signal) =>
    get<InboxList>('inbox', query, signal),
  );
  return (
    <>
      <h1>{TEXT.title}</h1>
      <FilterForm page="inbox" filters={FILTERS} query={query} />
      <Content loaded={loaded}>
        {({ items, next }) => (
          <>
            <Table
              caption={TEXT.title}
              columns={[
                TEXT.at,
                TEXT.outcome,
                TEXT.status,
                TEXT.code,
                TEXT.event,
                TEXT.issuer,
                TEXT.request,
              ]}
              rows={items.map((row) => ({
                key: row.id,
                cells: [
                  <a href={linkTo('inbox', row.id)}>
                    <Time at={row.at} />
                  </a>,
                  <Outcome row={row} />,
                  row.status,
                  row.code ?? '',
                  claimed(row, row.event),
                  claimed(row, row.issuer),
                  `${row.method} ${row.path}`,
                ],
              }))}
            />
            <Pager page="inbox" query={query} next={next} />
          </>
        )}
      </Content>
    </>
  );
}

/** One received request. */
export function InboxEntry({ session, id }: { session: ConsoleSession; id: string }): JSX.Element {
  const notices = useNotices();
  const path = `inbox/${encodeURIComponent(id)}`;
  const loaded = useLoaded(id, ['inbox'], (signal) => get<InboxDetails>(path, undefined, signal));
  return (
    <>
      <p>
        <a href={linkBack('inbox')}>{TEXT.back}</a>
      </p>
      <h1>{TEXT.one(id)}</h1>
      {notices.element}
      <Content loaded={loaded}>
        {(entry) => (
          <>
            <EntryFacts entry={entry} />
            {entry.retryable && session.capabilities.includes('redeliver') && (
              <div class="buttons">
                <button
                  type="button"
                  onClick={() =>
                    void notices.run(async () => {
                      await act('POST', `${path}/retry`);
                      loaded.reload();
                      return TEXT.retried;
                    })
                  }
                >
                  {TEXT.retry}
                </button>
              </div>
            )}
            {entry.explanation !== undefined && <Explanation of={entry.explanation} />}
            {entry.headers !== undefined && (
              <section>
                <h2>{TEXT.headers}</h2>
                <Facts facts={entry.headers} />
              </section>
            )}
            {entry.hasPayload && session.capabilities.includes('view-payload') && (
              <Payload path={`${path}/payload`} />
            )}
          </>
        )}
      </Content>
    </>
  );
}

function EntryFacts({ entry }: { entry: InboxDetails }): JSX.Element {
  return (
    <Facts
      facts={[
        [TEXT.outcome, <Outcome row={entry} />],
        [TEXT.at, <Time at={entry.at} />],
        [TEXT.request, `${entry.method} ${entry.path}`],
        [TEXT.status, entry.status],
        [TEXT.code, entry.code],
        [TEXT.detail, entry.detail],
        [TEXT.event, claimed(entry, entry.event)],
        [TEXT.eventId, claimed(entry, entry.eventId)],
        [TEXT.issuer, claimed(entry, entry.issuer)],
        [TEXT.kid, claimed(entry, entry.kid)],
        [TEXT.receiver, entry.receiver],
        [TEXT.size, entry.size === undefined ? undefined : bytes(entry.size)],
        [TEXT.runs, entry.runs],
      ]}
    />
  );
}

function Explanation({ of: { steps, hints } }: { of: ConsoleExplanation }): JSX.Element {
  const tones: Record<(typeof steps)[number]['outcome'], Tone> = {
    passed: 'good',
    failed: 'bad',
    skipped: 'plain',
  };
  return (
    <section>
      <h2>{TEXT.explanation}</h2>
      <Table
        caption={TEXT.explanation}
        columns={[TEXT.step, TEXT.result, TEXT.finding]}
        rows={steps.map(({ step, outcome, detail }) => ({
          key: step,
          cells: [step, <Badge tone={tones[outcome]}>{TEXT.results[outcome]}</Badge>, detail],
        }))}
      />
      {hints.length > 0 && (
        <>
          <h3>{TEXT.hints}</h3>
          <ul>
            {hints.map(({ code, detail }) => (
              <li key={code}>{detail}</li>
            ))}
          </ul>
        </>
      )}
    </section>
  );
}

function Outcome({ row: { outcome } }: { row: InboxRow }): JSX.Element {
  return <Badge tone={TONES[outcome]}>{TEXT.outcomes[outcome]}</Badge>;
}

/** Before the signature is verified, anyone may have written the claims. */
function claimed({ authenticated }: InboxRow, value: string | undefined): string | undefined {
  return value === undefined || authenticated ? value : TEXT.claimed(value);
}
