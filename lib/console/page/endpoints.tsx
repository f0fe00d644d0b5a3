import type { JSX } from 'preact';
import { useState } from 'preact/hooks';
import type {
  ConsoleSession,
  CreatedEndpointAnswer,
  EndpointHealth,
  EndpointList,
  EndpointRow,
  TestEventAnswer,
} from '../console-api.js';
import { act, get } from './api.js';
import { Badge, Content, Facts, Pager, Table, Time, useNotices, type Tone } from './components.js';
import {
  EndpointDialogs,
  EndpointForm,
  Secret,
  take,
  type EndpointValues,
  type OpenDialog,
} from './endpoint-dialogs.js';
import { dateTime, duration } from './format.js';
import { useLoaded } from './live.js';
import { linkBack, linkTo, type Route } from './route.js';
import { STRINGS } from './strings.js';

const TEXT = STRINGS.endpoints;
const TONES: Record<EndpointHealth['state'], Tone> = {
  disabled: 'plain',
  paused: 'wait',
  open: 'bad',
  failing: 'wait',
  healthy: 'good',
  unknown: 'plain',
};

/** The list of endpoints. */
export function Endpoints({
  session,
  route: { query },
}: {
  session: ConsoleSession;
  route: Route;
}): JSX.Element {
  const { capabilities, kind, tenant = query['tenant'] } = session;
  const [isAdding, setIsAdding] = useState(false);
  const [secret, setSecret] = useState<string>();
  const loaded = useLoaded(JSON.stringify(query), ['endpoints'], (signal) =>
    get<EndpointList>('endpoints', { ...query, tenant }, signal),
  );
  const mayAdd =
    capabilities.includes('manage-endpoints') && capabilities.includes('manage-secrets');
  const add = async (values: EndpointValues): Promise<void> => {
    const body = { ...values, tenant: session.tenant ?? values.tenant };
    const created = await act<CreatedEndpointAnswer>('POST', 'endpoints', body);
    setSecret(created.secret);
    loaded.reload();
  };
  return (
    <>
      <h1>{TEXT.title}</h1>
      {mayAdd && (
        <div class="buttons">
          <button type="button" onClick={() => setIsAdding(true)}>
            {TEXT.add}
          </button>
        </div>
      )}
      <Content loaded={loaded}>
        {({ items, next }) => (
          <>
            <EndpointTable items={items} isPortal={kind === 'portal'} />
            <Pager page="endpoints" query={query} next={next} />
          </>
        )}
      </Content>
      {isAdding && (
        <EndpointForm
          title={TEXT.addTitle}
          hasIdentity={kind === 'console'}
          onClose={() => setIsAdding(false)}
          onSave={add}
        />
      )}
      {secret !== undefined && <Secret secret={secret} onClose={() => setSecret(undefined)} />}
    </>
  );
}

function EndpointTable({
  items,
  isPortal,
}: {
  items: readonly EndpointRow[];
  isPortal: boolean;
}): JSX.Element {
  return (
    <Table
      caption={TEXT.title}
      columns={[
        TEXT.id,
        TEXT.health,
        TEXT.url,
        TEXT.events,
        ...(isPortal ? [] : [TEXT.tenant]),
        TEXT.counts,
        TEXT.lastSuccess,
      ]}
      rows={items.map((endpoint) => ({
        key: endpoint.id,
        cells: [
          <a href={linkTo('endpoints', endpoint.id)}>{endpoint.id}</a>,
          <Health health={endpoint.health} />,
          endpoint.url,
          endpoint.events.join(', '),
          ...(isPortal ? [] : [endpoint.tenant ?? '']),
          countsOf(endpoint.health),
          endpoint.health.lastSuccessAt && <Time at={endpoint.health.lastSuccessAt} />,
        ],
      }))}
    />
  );
}

/** One endpoint, and what can be done with it. */
export function Endpoint({ session, id }: { session: ConsoleSession; id: string }): JSX.Element {
  const notices = useNotices();
  const [dialog, setDialog] = useState<OpenDialog>();
  const path = `endpoints/${encodeURIComponent(id)}`;
  const loaded = useLoaded(id, ['endpoints', 'deliveries'], (signal) =>
    get<EndpointRow>(path, undefined, signal),
  );
  return (
    <>
      <p>
        <a href={linkBack('endpoints')}>{TEXT.back}</a>
      </p>
      <h1>{TEXT.one(id)}</h1>
      {notices.element}
      <Content loaded={loaded}>
        {(endpoint) => (
          <>
            <EndpointFacts endpoint={endpoint} />
            <p>
              <a href={linkTo('deliveries', undefined, { endpoint: id })}>{TEXT.deliveries}</a>
              {' · '}
              <a href={linkTo('deliveries', undefined, { endpoint: id, status: 'dead' })}>
                {TEXT.missed}
              </a>
            </p>
            <EndpointButtons
              endpoint={endpoint}
              session={session}
              onTest={() => void notices.run(() => sendTest(path, loaded.reload))}
              onEnable={() => void notices.run(() => take('enable', path, loaded.reload))}
              onDialog={setDialog}
            />
            {dialog === 'edit' && (
              <EndpointForm
                title={TEXT.editTitle}
                endpoint={endpoint}
                hasIdentity={false}
                onClose={() => setDialog(undefined)}
                onSave={async ({ url, events, description }) => {
                  await act('PATCH', path, { url, events, description: description ?? null });
                  loaded.reload();
                }}
              />
            )}
          </>
        )}
      </Content>
      <EndpointDialogs
        id={id}
        path={path}
        dialog={dialog}
        notices={notices}
        onChange={loaded.reload}
        onClose={() => setDialog(undefined)}
      />
    </>
  );
}

/**
 * Sends the test event, and returns the message about its success.
 *
 * @throws Error with the message about its failure
 */
async function sendTest(path: string, reload: () => void): Promise<string> {
  const { delivered, statusCode, failureReason, durationMs } = await act<TestEventAnswer>(
    'POST',
    `${path}/test`,
  );
  reload();
  if (delivered) return TEXT.testDelivered(statusCode, duration(durationMs));
  throw new Error(TEXT.testFailed(failureReason ?? '', duration(durationMs)));
}

function EndpointButtons({
  endpoint: { disabled, pausedAt, source },
  session: { capabilities },
  onTest,
  onEnable,
  onDialog,
}: {
  endpoint: EndpointRow;
  session: ConsoleSession;
  onTest: () => void;
  onEnable: () => void;
  onDialog: (dialog: OpenDialog) => void;
}): JSX.Element {
  const mayManage = capabilities.includes('manage-endpoints');
  const isManaged = source === 'store';
  const button = (label: string, onClick: () => void, kind = 'quiet'): JSX.Element => (
    <button type="button" class={kind} onClick={onClick}>
      {label}
    </button>
  );
  return (
    <div class="buttons">
      {mayManage && (
        <>
          {button(TEXT.test, onTest, '')}
          {pausedAt === undefined
            ? button(TEXT.pause, () => onDialog('pause'))
            : button(TEXT.resume, () => onDialog('resume'))}
          {disabled === undefined
            ? button(TEXT.disable, () => onDialog('disable'))
            : button(TEXT.enable, onEnable)}
          {isManaged && button(TEXT.edit, () => onDialog('edit'))}
        </>
      )}
      {isManaged &&
        capabilities.includes('manage-secrets') &&
        button(TEXT.rotate, () => onDialog('rotate'))}
      {isManaged && mayManage && button(TEXT.remove, () => onDialog('remove'), 'danger')}
    </div>
  );
}

function EndpointFacts({ endpoint }: { endpoint: EndpointRow }): JSX.Element {
  const { health, disabled, pausedAt, keys } = endpoint;
  const { failuresInRow, pausedUntil } = health.circuit;
  return (
    <Facts
      facts={[
        [TEXT.health, <Health health={health} />],
        [
          TEXT.disabled,
          disabled && (
            <>
              {STRINGS.disabledReason[disabled.reason]}, <Time at={disabled.at} />
            </>
          ),
        ],
        [TEXT.pausedAt, pausedAt && <Time at={pausedAt} />],
        [TEXT.circuit, failuresInRow > 0 ? failuresInRow : undefined],
        [TEXT.pausedUntil, pausedUntil && <Time at={pausedUntil} />],
        [TEXT.lastSuccess, health.lastSuccessAt && <Time at={health.lastSuccessAt} />],
        [TEXT.counts, countsOf(health)],
        [TEXT.url, endpoint.url],
        [TEXT.events, endpoint.events.join(', ')],
        [TEXT.description, endpoint.description],
        [TEXT.tenant, endpoint.tenant],
        [
          TEXT.keys,
          keys.map(({ kid, signsFrom }) => TEXT.keyFrom(kid, dateTime(signsFrom))).join('; '),
        ],
        [TEXT.source, TEXT.sources[endpoint.source]],
        [TEXT.created, endpoint.createdAt && <Time at={endpoint.createdAt} />],
      ]}
    />
  );
}

function Health({ health: { state } }: { health: EndpointHealth }): JSX.Element {
  return <Badge tone={TONES[state]}>{STRINGS.health[state]}</Badge>;
}

function countsOf({ counts }: EndpointHealth): string | undefined {
  return counts && `${counts.pending}, ${counts.delivered}, ${counts.dead}`;
}
