import type { JSX } from 'preact';
import { useState } from 'preact/hooks';
import type {
  ConsoleSession,
  ConsoleStats,
  EndpointFormatRow,
  EndpointPatch,
  EndpointRow,
  LinkAnswer,
  RecoveryAnswer,
  RotatedKeyAnswer,
  TestEventAnswer,
  TestEventRequest,
} from '../console-api.js';
import { Action, Select } from './action.js';
import { act } from './api.js';
import { Chart, statsRequest } from './charts.js';
import { Content, Empty, Facts, Panel, Pill, Time, Title } from './components.js';
import { EndpointForm, showOnce, showSecret, type EndpointValues } from './endpoint-form.js';
import { dateTime, duration } from './format.js';
import { HealthPill, healthText } from './health.js';
import { useLoaded, type Loaded } from './live.js';
import { BlockedKeys, useBlockedKeys } from './keys.js';
import { Recover, Recovery, useRecovery } from './recover.js';
import { linkBack, linkTo, navigation } from './route.js';
import { reasonText, STRINGS } from './strings.js';

const TEXT = STRINGS.endpoints;
const RANGE = '24h';

/** One endpoint, and what can be done with it. */
export function Endpoint({ session, id }: { session: ConsoleSession; id: string }): JSX.Element {
  const path = `endpoints/${encodeURIComponent(id)}`;
  const loaded = useLoaded<EndpointRow>(path, ['endpoints', 'deliveries']);
  const wanted = { range: RANGE, endpoint: id, tenant: session.tenant } as const;
  const stats = useLoaded<ConsoleStats, typeof wanted>(
    'stats',
    ['deliveries'],
    wanted,
    statsRequest,
  );
  const blocked = useBlockedKeys(id);
  const recovery = useRecovery(path);
  const format = useLoaded<EndpointFormatRow>(`${path}/format`, ['endpoints']);
  const blockedCount = blocked.data?.items.length ?? 0;
  return (
    <>
      <a class="back" href={linkBack('endpoints')}>
        {TEXT.back}
      </a>
      <Title text={loaded.data?.description ?? id} />
      <Content loaded={loaded}>
        {(endpoint) => (
          <>
            <p class="state">
              <HealthPill health={endpoint.health} /> {healthText(endpoint.health)}
              {blockedCount > 0 && <Pill tone="bad">{STRINGS.keys.count(blockedCount)}</Pill>}
            </p>
            <EndpointActions
              endpoint={endpoint}
              session={session}
              path={path}
              recovery={recovery}
              onChange={loaded.reload}
            />
            <Recovery
              path={path}
              recovery={recovery.data?.recovery}
              mayCancel={session.capabilities.includes('redeliver')}
              onChange={recovery.reload}
            />
            <BlockedKeys blocked={blocked} session={session} />
            <Panel
              title={TEXT.chart}
              aside={
                <span class="links">
                  <a href={linkTo('activity', undefined, { target: id })}>{STRINGS.nav.activity}</a>
                  <a href={linkTo('deliveries', undefined, { endpoint: id })}>{TEXT.deliveries}</a>
                  <a href={linkTo('deliveries', undefined, { endpoint: id, status: 'dead' })}>
                    {STRINGS.overview.missedCount(endpoint.health.counts?.dead ?? 0)}
                  </a>
                </span>
              }
            >
              <Content loaded={stats}>
                {(series) =>
                  series.endpoints.length === 0 ? (
                    <Empty text={TEXT.quiet} />
                  ) : (
                    <Chart stats={series} range={RANGE} filter={{ endpoint: id }} />
                  )
                }
              </Content>
            </Panel>
            <EndpointFacts endpoint={endpoint} format={format.data} />
          </>
        )}
      </Content>
    </>
  );
}

/** The settings of an endpoint, and what is known about it. */
function EndpointFacts({
  endpoint,
  format,
}: {
  endpoint: EndpointRow;
  format: EndpointFormatRow | undefined;
}): JSX.Element {
  const { health, disabled, keys } = endpoint;
  const { counts, lastSuccessAt } = health;
  return (
    <Facts
      facts={[
        [TEXT.id, <code>{endpoint.id}</code>],
        [TEXT.url, <code>{endpoint.url}</code>],
        [TEXT.events, <code>{endpoint.events.join(', ')}</code>],
        [STRINGS.labels.tenant, endpoint.tenant],
        ...Object.entries(endpoint.settings)
          // The format says it, with what the publisher has set.
          .filter(([name]) => name !== 'profile')
          .map(([name, value]) => [settingName(name), settingText(name, value)] as const),
        [
          TEXT.credentials,
          endpoint.credentials?.map((kind) => TEXT.credentialKinds[kind]).join(', '),
        ],
        [
          STRINGS.health.disabled,
          disabled && (
            <>
              {STRINGS.disabledReason[disabled.reason]}, <Time at={disabled.at} />
            </>
          ),
        ],
        [TEXT.counts, counts && TEXT.countsOf(counts)],
        [TEXT.lastSuccess, lastSuccessAt && <Time at={lastSuccessAt} />],
        [
          TEXT.keys,
          keys
            .map(({ kid, signsFrom, state }) => TEXT.keyFrom(kid, dateTime(signsFrom), state))
            .join('; '),
        ],
        [TEXT.settings.profile, format && <code>{profileText(format.profile)}</code>],
        [
          TEXT.acknowledged,
          format?.acknowledged && (
            <>
              <code>{profileText(format.acknowledged.profile)}</code>, {TEXT.lastTime}{' '}
              <Time at={format.acknowledged.at} />
            </>
          ),
        ],
        [TEXT.source, TEXT.sources[endpoint.source]],
        [TEXT.created, endpoint.createdAt && <Time at={endpoint.createdAt} />],
      ]}
    />
  );
}

function settingName(name: string): string {
  return (TEXT.settings as Readonly<Record<string, string>>)[name] ?? name;
}

function settingText(name: string, value: unknown): string {
  if (name === 'onDead') return TEXT.onDead[value as 'skip' | 'block'];
  if (name === 'timeout') return duration(Number(value));
  if (name === 'rateLimit') return TEXT.rateLimitOf(value as { perSecond: number; burst?: number });
  return typeof value === 'string' ? value : JSON.stringify(value);
}

function profileText(profile: unknown): string {
  return Array.isArray(profile) ? profile.join(' + ') : String(profile);
}

function EndpointActions({
  endpoint,
  session,
  path,
  recovery,
  onChange,
}: {
  endpoint: EndpointRow;
  session: ConsoleSession;
  path: string;
  recovery: Loaded<RecoveryAnswer>;
  onChange: () => void;
}): JSX.Element {
  const { capabilities } = session;
  const { id, tenant, disabled, pausedAt, source, health } = endpoint;
  /** As it was when the form was opened. */
  const [edited, setEdited] = useState<EndpointRow>();
  const mayManage = capabilities.includes('manage-endpoints');
  const isManaged = source === 'store';
  const take = (step: 'enable' | 'disable' | 'pause' | 'resume') => async (): Promise<string> => {
    await act('POST', `${path}/${step}`);
    onChange();
    return TEXT.done[step];
  };
  const step = (name: 'disable' | 'pause' | 'resume'): JSX.Element => (
    <Action
      label={TEXT[name]}
      ask={{ title: TEXT[name], text: TEXT[`${name}Ask`], verb: TEXT[name] }}
      run={take(name)}
    />
  );
  return (
    <div class="buttons">
      {mayManage && (
        <>
          <Action kind="main" label={TEXT.test} run={async () => sendTest(path, onChange)} />
          {pausedAt === undefined ? step('pause') : step('resume')}
          {disabled === undefined ? (
            step('disable')
          ) : (
            <Action label={TEXT.enable} run={take('enable')} />
          )}
          {isManaged && (
            <button type="button" class="quiet" onClick={() => setEdited(endpoint)}>
              {TEXT.edit}
            </button>
          )}
        </>
      )}
      {isManaged && capabilities.includes('manage-secrets') && (
        <Action
          label={TEXT.rotate}
          ask={{
            title: TEXT.rotate,
            text: TEXT.rotateAsk,
            verb: TEXT.rotate,
            fields: <Select label={TEXT.overlap} name="overlap" options={TEXT.overlaps} />,
          }}
          run={async (body) => {
            const rotated = await act<RotatedKeyAnswer>('POST', `${path}/rotate-key`, body);
            showSecret(rotated.secret);
            onChange();
            return undefined;
          }}
        />
      )}
      {capabilities.includes('redeliver') &&
        (health.counts?.dead ?? 0) > 0 &&
        recovery.data?.recovery?.status !== 'running' && (
          <Recover path={path} onStart={recovery.reload} />
        )}
      {tenant !== undefined && session.features.portal && capabilities.includes('share') && (
        <Action
          label={TEXT.share}
          ask={{
            title: TEXT.share,
            text: TEXT.shareAsk(tenant),
            verb: TEXT.shareVerb,
            fields: <LinkFields capabilities={capabilities} />,
          }}
          run={async ({ expiresIn, ...chosen }) => {
            const body = { expiresIn, capabilities: ['view', ...Object.values(chosen)] };
            const path = `tenants/${encodeURIComponent(tenant)}/link`;
            const { url } = await act<LinkAnswer>('POST', path, body);
            showOnce({ title: TEXT.share, note: TEXT.shareNote, text: url, done: STRINGS.close });
            return undefined;
          }}
        />
      )}
      {isManaged && mayManage && (
        <Action
          kind="danger"
          label={TEXT.remove}
          ask={{ title: TEXT.removeTitle, text: TEXT.removeAsk(id), verb: TEXT.remove, word: id }}
          run={async () => {
            const goTo = navigation();
            await act('DELETE', path);
            goTo(linkTo('endpoints'));
            return TEXT.removed;
          }}
        />
      )}
      {edited !== undefined && (
        <EndpointForm
          title={TEXT.editTitle}
          endpoint={edited}
          session={session}
          onClose={() => setEdited(undefined)}
          onSave={async (values) => {
            await act('PATCH', path, patchOf(edited, values));
            onChange();
          }}
        />
      )}
    </div>
  );
}

/** The members that the user has changed: another user may have changed the others in the meantime. */
function patchOf(
  { url, events, description, settings }: EndpointRow,
  { id: _id, tenant: _tenant, credentials, ...values }: EndpointValues,
): EndpointPatch {
  const before: Partial<EndpointValues> = { ...settings, url, events, description };
  const names = Object.keys(values) as (keyof typeof values)[];
  const changed = names.filter(
    (name) => JSON.stringify(values[name]) !== JSON.stringify(before[name]),
  );
  return {
    ...Object.fromEntries(changed.map((name) => [name, values[name] ?? null])),
    credentials,
  };
}

/** How long a link to the portal can be opened, and what it allows besides viewing. */
function LinkFields({ capabilities }: Pick<ConsoleSession, 'capabilities'>): JSX.Element {
  return (
    <>
      <Select label={TEXT.shareFor} name="expiresIn" options={TEXT.shareTimes} />
      <fieldset>
        <legend>{TEXT.shareMay}</legend>
        {Object.entries(TEXT.shareCapabilities).map(([value, label]) => (
          <label class="option" key={value}>
            <input
              type="checkbox"
              name={value}
              value={value}
              disabled={!capabilities.some((one) => one === value)}
            />
            <span>{label}</span>
          </label>
        ))}
      </fieldset>
    </>
  );
}

/**
 * Sends the test event, and returns the message about its success.
 *
 * @throws Error with the message about its failure
 */
export async function sendTest(
  path: string,
  reload: () => void,
  body: TestEventRequest = {},
): Promise<string> {
  const { delivered, statusCode, failureReason, durationMs } = await act<TestEventAnswer>(
    'POST',
    `${path}/test`,
    body,
  );
  reload();
  if (delivered) return TEXT.testDelivered(statusCode, duration(durationMs));
  throw new Error(TEXT.testFailed(reasonText(failureReason), duration(durationMs)));
}
