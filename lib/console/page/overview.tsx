import type { ComponentChildren, JSX } from 'preact';
import type { AuditList, ConsoleOverview, ConsoleSession } from '../console-api.js';
import { get } from './api.js';
import { Badge, Content, Table, Time } from './components.js';
import { duration } from './format.js';
import { useLoaded } from './live.js';
import { linkTo } from './route.js';
import { STRINGS } from './strings.js';

/** Counts of everything, with links to what they count. */
export function Overview({ session: { tenant } }: { session: ConsoleSession }): JSX.Element {
  const text = STRINGS.overview;
  const loaded = useLoaded('overview', ['deliveries', 'inbox', 'endpoints'], (signal) =>
    get<ConsoleOverview>('overview', { tenant }, signal),
  );
  return (
    <>
      <h1>{text.title}</h1>
      <Content loaded={loaded}>
        {({ deliveries, inbox, deadLetters }) => (
          <>
            {deliveries !== undefined && (
              <Cards title={text.queue}>
                <Card
                  name={text.pending}
                  value={deliveries.pending}
                  href={deliveriesOf('pending')}
                />
                <Card
                  name={text.delivered}
                  value={deliveries.delivered}
                  href={deliveriesOf('delivered')}
                />
                <Card name={text.dead} value={deliveries.dead} href={deliveriesOf('dead')} />
                <Card name={text.lag} value={duration(deliveries.lag)} />
              </Cards>
            )}
            {(inbox !== undefined || deadLetters !== undefined) && (
              <Cards title={text.inbox}>
                {inbox !== undefined && (
                  <>
                    <Card name={text.accepted} value={inbox.accepted} href={inboxOf('accepted')} />
                    <Card name={text.refused} value={inbox.refused} href={inboxOf('refused')} />
                    <Card name={text.dropped} value={inbox.dropped} />
                  </>
                )}
                {deadLetters !== undefined && (
                  <Card name={text.deadLetters} value={deadLetters} href={linkTo('dead-letters')} />
                )}
              </Cards>
            )}
          </>
        )}
      </Content>
    </>
  );
}

const deliveriesOf = (status: string): string => linkTo('deliveries', undefined, { status });
const inboxOf = (kind: string): string => linkTo('inbox', undefined, { kind });

function Cards({ title, children }: { title: string; children: ComponentChildren }): JSX.Element {
  return (
    <section>
      <h2>{title}</h2>
      <div class="cards">{children}</div>
    </section>
  );
}

function Card({
  name,
  value,
  href,
}: {
  name: string;
  value: number | string;
  href?: string;
}): JSX.Element {
  const content = (
    <>
      <strong>{typeof value === 'number' ? value.toLocaleString() : value}</strong>
      <span>{name}</span>
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

/** The last actions. */
export function Audit(): JSX.Element {
  const text = STRINGS.audit;
  const loaded = useLoaded('audit', ['audit'], (signal) =>
    get<AuditList>('audit', undefined, signal),
  );
  return (
    <>
      <h1>{text.title}</h1>
      <p>{text.intro}</p>
      <Content loaded={loaded}>
        {({ items }) => (
          <Table
            caption={text.title}
            columns={[text.at, text.action, text.actor, text.target, text.outcome]}
            rows={items.map((entry, index) => ({
              key: String(index),
              cells: [
                <Time at={entry.at} />,
                entry.action,
                entry.actor ?? '',
                entry.target ?? (entry.count === undefined ? '' : String(entry.count)),
                <Badge tone={entry.outcome === 'done' ? 'good' : 'bad'}>
                  {entry.code ?? text.outcomes[entry.outcome]}
                </Badge>,
              ],
            }))}
          />
        )}
      </Content>
    </>
  );
}
