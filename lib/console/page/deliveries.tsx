import type { JSX } from 'preact';
import { useState } from 'preact/hooks';
import type {
  ConsoleSession,
  DeliveryDetails,
  DeliveryList,
  DeliveryRow,
  DeliveryStatus,
  RedeliverAnswer,
  RedeliverRequest,
} from '../console-api.js';
import { act, get } from './api.js';
import {
  Badge,
  Confirm,
  Content,
  Facts,
  FilterForm,
  Pager,
  Table,
  Time,
  useNotices,
  useSelection,
  type Filter,
  type Selection,
  type Tone,
} from './components.js';
import { duration } from './format.js';
import { useLoaded } from './live.js';
import { Payload } from './payload.js';
import { linkBack, linkTo, type Route } from './route.js';
import { STRINGS } from './strings.js';

const TEXT = STRINGS.deliveries;
const TONES: Record<DeliveryStatus, Tone> = { pending: 'wait', delivered: 'good', dead: 'bad' };

const FILTERS: readonly Filter[] = [
  { name: 'status', label: TEXT.status, choices: STRINGS.status },
  { name: 'endpoint', label: TEXT.destination },
  { name: 'event', label: TEXT.event },
  { name: 'eventId', label: TEXT.eventId },
  { name: 'tenant', label: TEXT.tenant },
  { name: 'since', label: TEXT.since, type: 'datetime-local' },
  { name: 'until', label: TEXT.until, type: 'datetime-local' },
];

/** A dry run that waits for its confirmation. */
interface Plan {
  readonly request: Omit<RedeliverRequest, 'dryRun'>;
  readonly count: number;
  readonly skipped: number;
  readonly more: boolean;
}

/** The list of deliveries. */
export function Deliveries({
  session,
  route: { query },
}: {
  session: ConsoleSession;
  route: Route;
}): JSX.Element {
  const selection = useSelection();
  const notices = useNotices();
  const [plan, setPlan] = useState<Plan>();
  const isPortal = session.kind === 'portal';
  const { after, ...filter } = query;
  const request = defined({
    ...filter,
    since: instant(filter['since']),
    until: instant(filter['until']),
    tenant: session.tenant ?? filter['tenant'],
  });
  const loaded = useLoaded(JSON.stringify(query), ['deliveries'], (signal) =>
    get<DeliveryList>('deliveries', { ...request, after }, signal),
  );

  const dryRun = (asked: Plan['request']): void =>
    void notices.run(async () => {
      const answer = await redeliver({ ...asked, dryRun: true });
      const count = answer.items.filter(({ reason }) => reason === undefined).length;
      if (count === 0) return TEXT.redeliverNothing;
      setPlan({ request: asked, count, skipped: answer.items.length - count, more: answer.more });
      return undefined;
    });
  const carryOut = (planned: Plan): void =>
    void notices.run(async () => {
      const { items } = await redeliver({ ...planned.request, dryRun: false });
      selection.clear();
      loaded.reload();
      return TEXT.redelivered(items.filter(({ redelivered }) => redelivered).length);
    });

  return (
    <>
      <h1>{TEXT.title}</h1>
      <FilterForm
        page="deliveries"
        filters={FILTERS.filter(({ name }) => !isPortal || name !== 'tenant')}
        query={query}
      />
      {notices.element}
      <Content loaded={loaded}>
        {({ items, next, timeToDelivery: timing }) => (
          <>
            {timing !== undefined && (
              <p>{TEXT.timing(timing.count, duration(timing.p50), duration(timing.p95))}</p>
            )}
            {mayRedeliver(session) && (
              <RedeliverButtons
                chosen={selection.among(items)}
                onChosen={(ids) => dryRun({ ids })}
                {...(Object.keys(filter).length > 0 && {
                  onAll: () => dryRun({ filter: request }),
                })}
              />
            )}
            <DeliveryTable
              items={items}
              isPortal={isPortal}
              selection={mayRedeliver(session) ? selection : undefined}
            />
            <Pager page="deliveries" query={query} next={next} />
          </>
        )}
      </Content>
      {plan !== undefined && (
        <Confirm
          title={TEXT.redeliver}
          text={[
            TEXT.redeliverAsk(plan.count, plan.more),
            plan.skipped > 0 ? TEXT.redeliverSkipped(plan.skipped) : '',
          ].join(' ')}
          onClose={() => setPlan(undefined)}
          onConfirm={() => carryOut(plan)}
        />
      )}
    </>
  );
}

function RedeliverButtons({
  chosen,
  onChosen,
  onAll,
}: {
  chosen: readonly string[];
  onChosen: (ids: readonly string[]) => void;
  /** Absent without a filter, which would match every delivery. */
  onAll?: () => void;
}): JSX.Element {
  return (
    <div class="buttons">
      <button type="button" disabled={chosen.length === 0} onClick={() => onChosen(chosen)}>
        {TEXT.redeliverSelected}
      </button>
      {onAll !== undefined && (
        <button type="button" class="quiet" onClick={onAll}>
          {TEXT.redeliverAll}
        </button>
      )}
      <span>{chosen.length > 0 && STRINGS.selected(chosen.length)}</span>
    </div>
  );
}

function DeliveryTable({
  items,
  isPortal,
  selection,
}: {
  items: readonly DeliveryRow[];
  isPortal: boolean;
  selection: Selection | undefined;
}): JSX.Element {
  return (
    <Table
      caption={TEXT.title}
      columns={[
        TEXT.status,
        TEXT.event,
        TEXT.destination,
        ...(isPortal ? [] : [TEXT.tenant]),
        TEXT.attempts,
        TEXT.created,
        TEXT.next,
        TEXT.reason,
      ]}
      rows={items.map((row) => ({
        key: row.id,
        cells: [
          <Status of={row} />,
          <a href={linkTo('deliveries', row.id)}>{row.event}</a>,
          <Destination row={row} />,
          ...(isPortal ? [] : [row.tenant ?? '']),
          row.attemptsMade,
          <Time at={row.createdAt} />,
          row.nextAttemptAt === undefined ? '' : <Time at={row.nextAttemptAt} />,
          row.failureReason ?? '',
        ],
      }))}
      selection={selection}
    />
  );
}

/** One delivery with its attempts. */
export function Delivery({ session, id }: { session: ConsoleSession; id: string }): JSX.Element {
  const notices = useNotices();
  const path = `deliveries/${encodeURIComponent(id)}`;
  const loaded = useLoaded(id, ['deliveries'], (signal) =>
    get<DeliveryDetails>(path, undefined, signal),
  );
  const [isAsking, setIsAsking] = useState(false);
  const sendAgain = (): void =>
    void notices.run(async () => {
      const { items } = await redeliver({ ids: [id], dryRun: false });
      const [first] = items;
      loaded.reload();
      if (first?.redelivered !== true) return first?.reason;
      if (first.as !== undefined) location.hash = linkTo('deliveries', first.as);
      return TEXT.redelivered(1);
    });
  return (
    <>
      <p>
        <a href={linkBack('deliveries')}>{TEXT.back}</a>
      </p>
      <h1>{TEXT.one(id)}</h1>
      {notices.element}
      <Content loaded={loaded}>
        {(delivery) => (
          <>
            <DeliveryFacts delivery={delivery} />
            {mayRedeliver(session) && (
              <div class="buttons">
                <button
                  type="button"
                  onClick={() =>
                    delivery.status === 'delivered' ? setIsAsking(true) : sendAgain()
                  }
                >
                  {delivery.status === 'pending' ? TEXT.retryNow : TEXT.redeliver}
                </button>
              </div>
            )}
            <Attempts of={delivery} />
            {session.capabilities.includes('view-payload') && <Payload path={`${path}/payload`} />}
          </>
        )}
      </Content>
      {isAsking && (
        <Confirm
          title={TEXT.redeliver}
          text={TEXT.redeliverAsk(1, false)}
          onConfirm={sendAgain}
          onClose={() => setIsAsking(false)}
        />
      )}
    </>
  );
}

function DeliveryFacts({ delivery }: { delivery: DeliveryDetails }): JSX.Element {
  return (
    <Facts
      facts={[
        [TEXT.status, <Status of={delivery} />],
        [TEXT.event, delivery.event],
        [
          TEXT.eventId,
          <a href={linkTo('deliveries', undefined, { eventId: delivery.eventId })}>
            {delivery.eventId}
          </a>,
        ],
        [TEXT.destination, <Destination row={delivery} />],
        [TEXT.tenant, delivery.tenant],
        [TEXT.round, delivery.round],
        [TEXT.created, <Time at={delivery.createdAt} />],
        [TEXT.updated, <Time at={delivery.updatedAt} />],
        [TEXT.next, delivery.nextAttemptAt && <Time at={delivery.nextAttemptAt} />],
        [TEXT.reason, delivery.failureReason],
        [TEXT.trace, delivery.traceId],
      ]}
    />
  );
}

function Attempts({ of: { attempts } }: { of: DeliveryDetails }): JSX.Element {
  if (attempts.length === 0) return <p>{TEXT.noAttempts}</p>;
  return (
    <Table
      caption={TEXT.attemptsTitle}
      columns={[TEXT.attempt, TEXT.at, TEXT.request, TEXT.answer, TEXT.duration, TEXT.reason]}
      rows={attempts.map((attempt, index) => ({
        key: String(index),
        cells: [
          attempt.attempt,
          <Time at={attempt.at} />,
          attempt.method,
          <>
            <Badge tone={attempt.failureReason === undefined ? 'good' : 'bad'}>
              {String(attempt.statusCode ?? TEXT.noAnswer)}
            </Badge>
            {attempt.answer !== undefined && <pre>{attempt.answer}</pre>}
          </>,
          duration(attempt.durationMs),
          attempt.failureReason ?? '',
        ],
      }))}
    />
  );
}

function Status({ of: { status } }: { of: DeliveryRow }): JSX.Element {
  return <Badge tone={TONES[status]}>{STRINGS.status[status]}</Badge>;
}

function Destination({ row: { endpointId, origin } }: { row: DeliveryRow }): JSX.Element {
  return endpointId === undefined ? (
    <>{origin}</>
  ) : (
    <a href={linkTo('endpoints', endpointId)}>{endpointId}</a>
  );
}

function mayRedeliver({ capabilities }: ConsoleSession): boolean {
  return capabilities.includes('redeliver');
}

function redeliver(request: RedeliverRequest): Promise<RedeliverAnswer> {
  return act('POST', 'deliveries/redeliver', request);
}

/** A local date and time of a form, in UTC. */
function instant(local: string | undefined): string | undefined {
  const date = new Date(local ?? '');
  return Number.isNaN(date.getTime()) ? undefined : date.toISOString();
}

function defined(query: Readonly<Record<string, string | undefined>>): Record<string, string> {
  return Object.fromEntries(
    Object.entries(query).filter((pair): pair is [string, string] => pair[1] !== undefined),
  );
}
