import type { JSX } from 'preact';
import type {
  ConsoleExplanation,
  ConsoleSession,
  InboxDetails,
  InboxList,
  InboxOutcome,
  InboxRow,
} from '../console-api.js';
import { Action } from './action.js';
import { act } from './api.js';
import { Content, Facts, Panel, Pill, Time, Title, type Tone } from './components.js';
import { bytes } from './format.js';
import { useLoaded } from './live.js';
import { Payload } from './payload.js';
import { linkBack, linkTo, type Route } from './route.js';
import { Runs } from './runs.js';
import { requestOf, SearchBar } from './search.js';
import { List, Table } from './table.js';
import { STRINGS } from './strings.js';

const TEXT = STRINGS.inbox;
const LABELS = STRINGS.labels;
const TONES: Record<InboxOutcome, Tone> = {
  handled: 'good',
  queued: 'wait',
  duplicate: 'plain',
  unhandled: 'plain',
  failed: 'bad',
  dead: 'bad',
  refused: 'bad',
};

export function Inbox({ route: { query } }: { route: Route }): JSX.Element {
  const loaded = useLoaded<InboxList, Route['query']>('inbox', ['inbox'], query, requestOf);
  return (
    <>
      <Title text={TEXT.title} />
      <SearchBar
        page="inbox"
        rows={loaded.data?.items}
        main={{ name: 'kind', label: TEXT.kind, choices: TEXT.kinds }}
        filters={[
          {
            name: 'code',
            label: TEXT.code,
            suggest: 'code',
            accepts: (word) => /^[a-z]+(_[a-z]+)+$/.test(word),
          },
          {
            name: 'event',
            label: LABELS.event,
            suggest: 'event',
            accepts: (word) => /^[a-z][\w-]*(\.[\w-]+)*$/i.test(word),
          },
          { name: 'issuer', label: TEXT.issuer, suggest: 'issuer' },
          { name: 'outcome', label: LABELS.outcome, choices: TEXT.outcomes },
          { name: 'receiver', label: LABELS.receiver, suggest: 'receiver' },
          { name: 'eventId', label: LABELS.eventId, accepts: () => true },
        ]}
        query={query}
      />
      <List
        page="inbox"
        query={query}
        loaded={loaded}
        empty={TEXT.empty}
        emptyNext={TEXT.emptyNext}
        caption={TEXT.title}
        columns={[
          {
            name: TEXT.at,
            cell: ({ id, at }) => (
              <a href={linkTo('inbox', id)}>
                <Time at={at} />
              </a>
            ),
          },
          { name: LABELS.outcome, cell: (row) => <Outcome row={row} /> },
          { name: TEXT.code, cell: ({ code }) => code && <code>{code}</code> },
          { name: LABELS.event, cell: (row) => claimed(row, row.event) },
          { name: TEXT.issuer, cell: (row) => claimed(row, row.issuer) },
          {
            name: TEXT.request,
            cell: ({ method, path }) => (
              <code>
                {method} {path}
              </code>
            ),
          },
          { name: LABELS.status, isNumber: true, cell: ({ status }) => status },
        ]}
      />
    </>
  );
}

/** One request: why it was answered as it was, and what it carried. */
export function InboxEntry({ session, id }: { session: ConsoleSession; id: string }): JSX.Element {
  const path = `inbox/${encodeURIComponent(id)}`;
  const loaded = useLoaded<InboxDetails>(path, ['inbox']);
  return (
    <>
      <a class="back" href={linkBack('inbox')}>
        {TEXT.back}
      </a>
      <Title text={loaded.data?.event ?? TEXT.one(id)} />
      <Content loaded={loaded}>
        {(entry) => (
          <>
            <p class="state">
              <Outcome row={entry} />
              {entry.code !== undefined && <code>{entry.code}</code>}
              {entry.detail}
            </p>
            {entry.retryable && session.capabilities.includes('redeliver') && (
              <div class="buttons">
                <Action
                  kind="main"
                  label={TEXT.retry}
                  run={async () => {
                    await act('POST', `${path}/retry`);
                    loaded.reload();
                    return TEXT.retried;
                  }}
                />
              </div>
            )}
            {entry.explanation !== undefined && <Explanation of={entry.explanation} />}
            <EntryFacts entry={entry} />
            {(entry.runs !== undefined || entry.retryable) && <Runs id={id} />}
            {entry.headers !== undefined && (
              <Panel title={TEXT.headers}>
                <Facts facts={entry.headers} />
              </Panel>
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
        [TEXT.at, <Time at={entry.at} />],
        [TEXT.request, <code>{`${entry.method} ${entry.path}`}</code>],
        [LABELS.status, entry.status],
        [LABELS.event, claimed(entry, entry.event)],
        [LABELS.eventId, claimed(entry, entry.eventId)],
        [TEXT.issuer, claimed(entry, entry.issuer)],
        [TEXT.kid, claimed(entry, entry.kid)],
        [LABELS.receiver, entry.receiver],
        [TEXT.size, entry.size === undefined ? undefined : bytes(entry.size)],
        [LABELS.runs, entry.runs],
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
    <Panel title={TEXT.explanation}>
      <Table
        caption={TEXT.explanation}
        rows={steps}
        keyOf={({ step }) => step}
        columns={[
          { name: TEXT.step, cell: ({ step }) => step },
          {
            name: TEXT.result,
            cell: ({ outcome }) => <Pill tone={tones[outcome]}>{TEXT.results[outcome]}</Pill>,
          },
          { name: TEXT.finding, cell: ({ detail }) => detail },
        ]}
      />
      {hints.length > 0 && (
        <div class="hints">
          <h3>{TEXT.hints}</h3>
          <ul>
            {hints.map(({ code, detail }) => (
              <li key={code}>{detail}</li>
            ))}
          </ul>
        </div>
      )}
    </Panel>
  );
}

function Outcome({ row: { outcome } }: { row: InboxRow }): JSX.Element {
  return <Pill tone={TONES[outcome]}>{TEXT.outcomes[outcome]}</Pill>;
}

/** Before the signature is verified, anyone may have written the claims. */
function claimed({ authenticated }: InboxRow, value: string | undefined): string | undefined {
  return value === undefined || authenticated ? value : TEXT.claimed(value);
}
