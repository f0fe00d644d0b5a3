import type { ComponentChildren, JSX } from 'preact';
import type { ConsoleOverview, ConsoleStats, EndpointRow } from '../console-api.js';
import { Chart, Sparkline, statsRequest, type Range } from './charts.js';
import { Choice, Content, Empty, Panel, Title } from './components.js';
import { HealthPill, healthText } from './health.js';
import { duration, number, percent } from './format.js';
import { useLoaded, type Loaded } from './live.js';
import { linkTo, type ViewProps } from './route.js';
import { RANGES } from './search.js';
import { STRINGS } from './strings.js';

const TEXT = STRINGS.overview;

/** What needs attention, how deliveries go, and what was received. */
export function Overview({
  session,
  route,
  overview,
}: ViewProps & { overview: Loaded<ConsoleOverview> }): JSX.Element {
  const { tenant, features } = session;
  const range: Range =
    route.query['range'] === '1h' || route.query['range'] === '7d' ? route.query['range'] : '24h';
  const wanted = { range, tenant };
  const path = features.deliveries ? 'stats' : undefined;
  const stats = useLoaded<ConsoleStats, typeof wanted>(path, ['deliveries'], wanted, statsRequest);
  return (
    <>
      <Title text={STRINGS.nav.overview}>
        {features.deliveries && (
          <Choice
            label={TEXT.range}
            chosen={range}
            options={Object.keys(RANGES).map((value) => ({
              value,
              name: STRINGS.search.ranges[value as Range],
              href: linkTo('overview', undefined, { range: value }),
            }))}
          />
        )}
      </Title>
      <Content loaded={overview}>
        {(data) => (
          <>
            <Alert attention={data.attention ?? []} />
            {features.deliveries && (
              <Content loaded={stats}>
                {(series) => (
                  <>
                    <Numbers stats={series} overview={data} range={range} />
                    <Panel title={TEXT.chart[range]}>
                      {isQuiet(series) ? (
                        <Empty text={TEXT.quiet} next={TEXT.quietNext} />
                      ) : (
                        <Chart stats={series} range={range} />
                      )}
                    </Panel>
                    <Attention endpoints={data.attention ?? []} stats={series} />
                  </>
                )}
              </Content>
            )}
            <Received overview={data} />
          </>
        )}
      </Content>
    </>
  );
}

function isQuiet({ total: { delivered, failed, pending } }: ConsoleStats): boolean {
  return delivered + failed + pending === 0;
}

function Alert({ attention }: { attention: readonly EndpointRow[] }): JSX.Element | null {
  const failing = attention.filter(({ health }) => health.state === 'failing');
  const [first] = failing;
  if (first === undefined) return null;
  return (
    <div class="notice bad alert">
      <strong>{TEXT.fail(failing.length)}</strong>
      <span>
        {first.id}: {healthText(first.health)}
      </span>
      <a href={linkTo('endpoints', first.id)}>{TEXT.show}</a>
    </div>
  );
}

function Numbers({
  stats: { total },
  overview: { deliveries },
  range,
}: {
  stats: ConsoleStats;
  overview: ConsoleOverview;
  range: Range;
}): JSX.Element {
  const { delivered, failed, p50Ms, p95Ms } = total;
  const { pending = 0, dead = 0, held = 0, lag = 0 } = deliveries ?? {};
  const done = delivered + failed;
  const of = (status: string): string => linkTo('deliveries', undefined, { status, last: range });
  return (
    <div class="cards">
      <Card
        name={STRINGS.status.delivered}
        value={done === 0 ? '–' : percent(delivered / done)}
        detail={TEXT.of(delivered, done)}
        href={of('delivered')}
      />
      <Card
        name={STRINGS.status.dead}
        value={failed}
        detail={TEXT.missedInAll(dead)}
        href={of('dead')}
        isBad={failed > 0}
      />
      <Card
        name={STRINGS.labels.waiting}
        value={pending}
        detail={[
          lag > 1_000 ? TEXT.late(duration(lag)) : TEXT.onTime,
          ...(held > 0 ? [TEXT.held(held)] : []),
        ].join(', ')}
        href={linkTo('deliveries', undefined, { status: 'pending' })}
      />
      <Card
        name={TEXT.time}
        value={p95Ms === undefined ? '–' : duration(p95Ms)}
        detail={p50Ms === undefined ? TEXT.noTime : TEXT.median(duration(p50Ms))}
      />
    </div>
  );
}

function Attention({
  endpoints,
  stats,
}: {
  endpoints: readonly EndpointRow[];
  stats: ConsoleStats;
}): JSX.Element {
  return (
    <Panel title={TEXT.attention} aside={<a href={linkTo('endpoints')}>{TEXT.allEndpoints}</a>}>
      {endpoints.length === 0 ? (
        <Empty text={TEXT.allFine} />
      ) : (
        <ul class="rows">
          {endpoints.map((endpoint) => {
            const { id, tenant, description, health } = endpoint;
            const series = stats.endpoints.find(
              (one) => one.endpoint === id && one.tenant === tenant,
            );
            return (
              <li key={id}>
                <span class="who">
                  <a href={linkTo('endpoints', id)}>{description ?? id}</a>
                  <small>{[description && id, tenant].filter(Boolean).join(' · ')}</small>
                </span>
                <HealthPill health={health} />
                <span class="why">{healthText(health)}</span>
                {series === undefined ? <span class="spark" /> : <Sparkline series={series} />}
                <Unfinished endpoint={endpoint} />
              </li>
            );
          })}
        </ul>
      )}
    </Panel>
  );
}

/** How many deliveries were missed; if none were, how many wait. */
function Unfinished({ endpoint: { id, health } }: { endpoint: EndpointRow }): JSX.Element {
  const { dead = 0, pending = 0 } = health.counts ?? {};
  const status = dead > 0 ? 'dead' : 'pending';
  return (
    <a class="number" href={linkTo('deliveries', undefined, { endpoint: id, status })}>
      {dead > 0 ? TEXT.missedCount(dead) : TEXT.waitingCount(pending)}
    </a>
  );
}

function Received({ overview: { inbox, deadLetters } }: { overview: ConsoleOverview }) {
  if (inbox === undefined && deadLetters === undefined) return null;
  const of = (kind: string): string => linkTo('inbox', undefined, { kind });
  return (
    <section>
      <h2>{STRINGS.inbox.title}</h2>
      <div class="cards">
        {inbox !== undefined && (
          <>
            <Card
              name={STRINGS.inbox.kinds.accepted}
              value={inbox.accepted}
              detail={TEXT.kept}
              href={of('accepted')}
            />
            <Card
              name={STRINGS.inbox.kinds.refused}
              value={inbox.refused}
              detail={TEXT.refusedWhy}
              href={of('refused')}
            />
            {inbox.dropped > 0 && (
              <Card name={TEXT.dropped} value={inbox.dropped} detail={TEXT.droppedWhy} />
            )}
          </>
        )}
        {deadLetters !== undefined && (
          <Card
            name={STRINGS.deadLetters.title}
            value={deadLetters}
            detail={TEXT.deadLettersWhy}
            href={linkTo('dead-letters')}
            isBad={deadLetters > 0}
          />
        )}
      </div>
    </section>
  );
}

function Card({
  name,
  value,
  detail,
  href,
  isBad = false,
}: {
  name: string;
  value: number | string;
  detail: ComponentChildren;
  href?: string;
  isBad?: boolean;
}): JSX.Element {
  const content = (
    <>
      <span>{name}</span>
      <strong class={isBad ? 'bad-text' : ''}>
        {typeof value === 'number' ? number(value) : value}
      </strong>
      <small>{detail}</small>
    </>
  );
  return href === undefined ? (
    <div class="card">{content}</div>
  ) : (
    <a class="card" href={href}>
      {content}
    </a>
  );
}
