import type { JSX } from 'preact';
import type { ConsoleSession, EndpointList, EventTypeList } from '../console-api.js';
import { Action, Field, type Question } from './action.js';
import { get } from './api.js';
import { Content, Copy, Panel, Pill, Title } from './components.js';
import { sendTest } from './endpoint.js';
import { useLoaded } from './live.js';
import { Colored } from './payload.js';
import { STRINGS } from './strings.js';

const TEXT = STRINGS.eventTypes;

/** The events that the application has defined, with an example of each to try. */
export function EventTypes({ session }: { session: ConsoleSession }): JSX.Element {
  const loaded = useLoaded<EventTypeList>('event-types', []);
  return (
    <>
      <Title text={STRINGS.nav['event-types']} />
      <p class="intro">{TEXT.intro}</p>
      <Content loaded={loaded}>
        {({ items }) =>
          items.map((type) => <EventType key={type.event} type={type} session={session} />)
        }
      </Content>
    </>
  );
}

function EventType({
  type: { event, description, version, deprecated, schema, example },
  session,
}: {
  type: EventTypeList['items'][number];
  session: ConsoleSession;
}): JSX.Element {
  const shown = example === undefined ? undefined : JSON.stringify(example, undefined, 2);
  const mayTest = session.capabilities.includes('manage-endpoints');
  return (
    <Panel
      title={event}
      aside={
        <span class="links">
          {version !== undefined && <small>{TEXT.version(version)}</small>}
          {deprecated !== undefined && deprecated !== false && (
            <Pill tone="wait">{TEXT.deprecated}</Pill>
          )}
        </span>
      }
    >
      <div>
        {description}
        {typeof deprecated === 'string' && <p class="muted">{deprecated}</p>}
      </div>
      {shown === undefined ? (
        <p class="muted">{TEXT.noExample}</p>
      ) : (
        <details open>
          <summary>{TEXT.example}</summary>
          <pre tabIndex={0}>
            <Colored text={shown} />
          </pre>
        </details>
      )}
      {schema !== undefined && (
        <details>
          <summary>{TEXT.schema}</summary>
          <pre tabIndex={0}>
            <Colored text={JSON.stringify(schema, undefined, 2)} />
          </pre>
        </details>
      )}
      {shown !== undefined && (
        <div class="buttons">
          {mayTest && <SendExample event={event} session={session} />}
          <Copy text={shown} />
        </div>
      )}
    </Panel>
  );
}

function SendExample({ event, session }: { event: string; session: ConsoleSession }): JSX.Element {
  const ask = async (): Promise<Question | string> => {
    const { items } = await get<EndpointList>('endpoints', {
      tenant: session.tenant,
      limit: '100',
    });
    if (items.length === 0) return TEXT.noEndpoint;
    const fields = (
      <Field label={TEXT.to}>
        <select name="id">
          {items.map(({ id, description }) => (
            <option value={id} key={id}>
              {description === undefined ? id : `${description} (${id})`}
            </option>
          ))}
        </select>
      </Field>
    );
    return { title: TEXT.sendTitle, text: TEXT.sendAsk(event), verb: TEXT.sendVerb, fields };
  };
  return (
    <Action
      label={TEXT.send}
      ask={ask}
      run={async ({ id = '' }) => {
        const path = `endpoints/${encodeURIComponent(id)}`;
        await sendTest(path, () => undefined, { event });
        return TEXT.sent(event, id);
      }}
    />
  );
}
