import type { JSX } from 'preact';
import type {
  DeliveryList,
  DeliveryRow,
  DeliveryStatus,
  EraseAnswer,
  RedeliverAnswer,
  RedeliverRequest,
} from '../console-api.js';
import { Action, type Question } from './action.js';
import { act } from './api.js';
import { Pill, Time, Title, type Tone } from './components.js';
import { now } from './format.js';
import { useLoaded } from './live.js';
import { linkTo, type Route, type ViewProps } from './route.js';
import { requestOf, SearchBar } from './search.js';
import { List, useSelection } from './table.js';
import { reasonText, STRINGS } from './strings.js';

const TEXT = STRINGS.deliveries;
const LABELS = STRINGS.labels;
const TONES: Record<DeliveryStatus, Tone> = { pending: 'wait', delivered: 'good', dead: 'bad' };

/** Sends deliveries again, or returns what would be sent again. */
function redeliver(request: RedeliverRequest): Promise<RedeliverAnswer> {
  return act('POST', 'deliveries/redeliver', request);
}

/** The number of deliveries that have this reason not to be sent again; `undefined`: that would be sent. */
function countOf(
  { items }: RedeliverAnswer,
  wanted: RedeliverAnswer['items'][number]['reason'],
): number {
  return items.filter(({ reason }) => reason === wanted).length;
}

/**
 * Sends one delivery again, unless it was delivered after the page showed it with this status.
 *
 * @returns a message about its success, and the id of the new delivery, if it is sent as another one
 * @throws Error with the message why it is not sent again
 */
export async function resend({
  id,
  status,
}: Pick<DeliveryRow, 'id' | 'status'>): Promise<{ text: string; as: string | undefined }> {
  const { items } = await redeliver({ ids: [id], statuses: [status], dryRun: false });
  const [first] = items;
  if (first?.reason === 'delivered') return { text: TEXT.deliveredMeanwhile(1), as: undefined };
  if (first?.redelivered !== true) throw new Error(TEXT.notRedelivered(first?.reason ?? ''));
  return { text: TEXT.redelivered(1), as: first.as };
}

export function Deliveries({ session, route: { query } }: ViewProps): JSX.Element {
  const selection = useSelection();
  const isPortal = session.kind === 'portal';
  const mayRedeliver = session.capabilities.includes('redeliver');
  const { after: _after, ...asked } = query;
  // Further filters would not limit it.
  const isOfTenant = Object.keys(asked).join() === 'tenant';
  const mayErase = isOfTenant && session.capabilities.includes('erase');
  const own: Route['query'] = session.tenant === undefined ? {} : { tenant: session.tenant };
  const request = { ...requestOf(asked), ...own };
  const loaded = useLoaded<DeliveryList, Route['query']>(
    'deliveries',
    ['deliveries'],
    { ...query, ...own },
    requestOf,
  );
  return (
    <>
      <Title text={STRINGS.nav.deliveries} />
      <SearchBar
        page="deliveries"
        rows={loaded.data?.items}
        main={{ name: 'status', label: LABELS.status, choices: STRINGS.status }}
        filters={[
          {
            name: 'event',
            label: LABELS.event,
            suggest: 'event',
            accepts: (word) => /^[a-z][\w-]*(\.[\w-]+)*$/i.test(word) && !/\d{4}/.test(word),
          },
          { name: 'endpoint', label: LABELS.endpoint, suggest: 'endpointId' },
          !isPortal && { name: 'tenant', label: LABELS.tenant, suggest: 'tenant' },
          { name: 'keyState', label: STRINGS.keys.key, choices: STRINGS.keys.states },
          { name: 'eventId', label: LABELS.eventId, accepts: () => true },
        ]}
        query={query}
      />
      <List
        page="deliveries"
        query={query}
        loaded={loaded}
        empty={TEXT.empty}
        emptyNext={TEXT.emptyNext}
        above={({ items }) => (
          <div class="bar">
            {mayRedeliver && items.length > 0 && (
              <SendAgain
                chosen={items.filter(({ id }) => selection.has(id))}
                newest={items[0]!.createdAt}
                filter={Object.keys(asked).length > 0 ? request : undefined}
                onDone={(left) => {
                  selection.clear();
                  selection.set(left, true);
                  loaded.reload();
                }}
              />
            )}
            {mayErase && <Erase tenant={query['tenant']!} onDone={loaded.reload} />}
          </div>
        )}
        caption={STRINGS.nav.deliveries}
        selection={mayRedeliver ? selection : undefined}
        columns={[
          {
            name: LABELS.event,
            cell: (row) => <a href={linkTo('deliveries', row.id)}>{row.event}</a>,
          },
          {
            name: LABELS.status,
            cell: (row) => (
              <span>
                <StatusPill of={row} /> <KeyPill of={row} />
              </span>
            ),
          },
          { name: TEXT.reason, cell: ({ failureReason }) => <Reason code={failureReason} /> },
          { name: LABELS.endpoint, cell: (row) => <Destination row={row} /> },
          !isPortal && { name: LABELS.tenant, cell: ({ tenant }) => tenant },
          { name: TEXT.attempts, isNumber: true, cell: ({ attemptsMade }) => attemptsMade },
          { name: TEXT.created, cell: ({ createdAt }) => <Time at={createdAt} /> },
          { name: TEXT.next, cell: (row) => <NextAttempt of={row} /> },
        ]}
      />
    </>
  );
}

function SendAgain({
  chosen,
  newest,
  filter,
  onDone,
}: {
  chosen: readonly DeliveryRow[];
  /** When the newest delivery of the list was recorded. */
  newest: string;
  /** Absent without a filter, which would match every delivery. */
  filter: Readonly<Record<string, string>> | undefined;
  /** @param left - ids of the chosen ones that the server has not come to */
  onDone: (left: readonly string[]) => void;
}): JSX.Element {
  const send = async (what: Parameters<typeof redeliver>[0]): Promise<string> => {
    const answer = await redeliver({ ...what, dryRun: false });
    const left = what.ids?.filter((id) => answer.items.every((item) => item.id !== id)) ?? [];
    onDone(left);
    return [
      TEXT.redelivered(countOf(answer, undefined)),
      meanwhile(answer),
      left.length === 0 ? '' : TEXT.redeliverLeft(left.length),
    ]
      .filter(Boolean)
      .join(' ');
  };
  const preview =
    (what: Parameters<typeof redeliver>[0], of?: string) =>
    async (): Promise<Question | string> => {
      const answer = await redeliver(what);
      const count = countOf(answer, undefined);
      if (count === 0) return meanwhile(answer) || TEXT.redeliverNothing;
      const skipped = answer.items.length - count - countOf(answer, 'delivered');
      const text = [
        TEXT.redeliverAsk(count, answer.more),
        of === undefined ? '' : TEXT.redeliverOf(of),
        skipped > 0 ? TEXT.redeliverSkipped(skipped) : '',
        meanwhile(answer),
      ].join(' ');
      return { title: TEXT.redeliver, text, verb: TEXT.redeliverCount(count) };
    };
  const ofChosen = {
    ids: chosen.map(({ id }) => id),
    statuses: chosen.map(({ status }) => status),
    dryRun: true,
  };
  const ofAll = { filter: { ...filter, until: boundOf(filter?.['until'], newest) }, dryRun: true };
  return (
    <>
      <Action
        label={TEXT.redeliverSelected}
        disabled={chosen.length === 0}
        ask={preview(ofChosen)}
        run={async () => send(ofChosen)}
      />
      {filter !== undefined && filter['status'] !== 'pending' && (
        <Action
          label={TEXT.redeliverAll(filter['status'] === 'delivered' ? 'delivered' : 'dead')}
          ask={preview(ofAll, describe(filter))}
          run={async () => send(ofAll)}
        />
      )}
      <span>{chosen.length > 0 && STRINGS.selected(chosen.length)}</span>
    </>
  );
}

function meanwhile(answer: RedeliverAnswer): string {
  const count = countOf(answer, 'delivered');
  return count === 0 ? '' : TEXT.deliveredMeanwhile(count);
}

/** Deletes the endpoints and the deliveries of a tenant. */
function Erase({ tenant, onDone }: { tenant: string; onDone: () => void }): JSX.Element {
  const erase = async (dryRun: boolean): Promise<EraseAnswer> =>
    act('POST', `tenants/${encodeURIComponent(tenant)}/erase`, { dryRun });
  return (
    <Action
      kind="danger"
      label={TEXT.erase(tenant)}
      ask={async () => {
        const { endpoints, deliveries } = await erase(true);
        if (endpoints + deliveries === 0) return TEXT.eraseNothing;
        const text = TEXT.eraseAsk(tenant, endpoints, deliveries);
        return { title: TEXT.erase(tenant), text, verb: TEXT.eraseVerb, word: tenant };
      }}
      run={async () => {
        const { endpoints, deliveries, isComplete } = await erase(false);
        onDone();
        return isComplete ? TEXT.erased(endpoints, deliveries) : TEXT.erasedPartly;
      }}
    />
  );
}

/** Ends a filter now, so that it selects what was counted. Listed deliveries are in it: `now()` may be late by some milliseconds. */
function boundOf(until: string | undefined, newest: string): string {
  const end = new Date(Math.max(now(), Date.parse(newest) + 1)).toISOString();
  return until === undefined || Date.parse(until) > Date.parse(end) ? end : until;
}

/** What a filter selects, in words. */
function describe({ status, ...filter }: Readonly<Record<string, string>>): string {
  const state = STRINGS.status[status === 'delivered' ? 'delivered' : 'dead'];
  return [state, ...Object.entries(filter).map(([name, value]) => `${name} ${value}`)].join(', ');
}

/** Why a delivery failed or waits, in words; the title has the code. */
export function Reason({ code }: { code: string | undefined }): JSX.Element | null {
  return code === undefined ? null : <span title={code}>{reasonText(code)}</span>;
}

export function StatusPill({ of: { status } }: { of: DeliveryRow }): JSX.Element {
  return <Pill tone={TONES[status]}>{STRINGS.status[status]}</Pill>;
}

/** When it is attempted next; unknown while it waits for another one of its key. */
export function NextAttempt({ of: { nextAttemptAt, keyState } }: { of: DeliveryRow }) {
  return nextAttemptAt === undefined || keyState === 'waiting' ? null : <Time at={nextAttemptAt} />;
}

/** Whether a delivery waits for an earlier one of its key, or holds up later ones. */
export function KeyPill({ of: { keyState } }: { of: DeliveryRow }): JSX.Element | null {
  if (keyState === undefined) return null;
  return (
    <Pill tone={keyState === 'blocking' ? 'bad' : 'wait'}>{STRINGS.keys.states[keyState]}</Pill>
  );
}

export function Destination({ row: { endpointId, origin } }: { row: DeliveryRow }): JSX.Element {
  return endpointId === undefined ? (
    <>{origin}</>
  ) : (
    <a class="plain-link" href={linkTo('endpoints', endpointId)} title={endpointId}>
      {endpointId}
    </a>
  );
}
