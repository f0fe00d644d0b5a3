import type { JSX } from 'preact';
import { useEffect, useState } from 'preact/hooks';
import type {
  ConsoleSession,
  EndpointPatch,
  EndpointRow,
  EventTypeList,
  NewEndpointRequest,
} from '../console-api.js';
import { Dialog, Field, FormDialog, Select, type Values } from './action.js';
import { get } from './api.js';
import { Copy } from './components.js';
import { checkFilter, type FilterCheck } from './filter-check.js';
import { STRINGS } from './strings.js';

const TEXT = STRINGS.endpoints;
const EVERY_EVENT = '**';

type EventType = EventTypeList['items'][number];

/** The fields of an endpoint that a user fills in; `credentials` is `null` to remove them, and absent to keep them. */
export type EndpointValues = Omit<NewEndpointRequest, 'credentials'> &
  Pick<EndpointPatch, 'credentials'>;

export function EndpointForm({
  title,
  endpoint,
  session,
  onSave,
  onClose,
}: {
  title: string;
  /** Absent for a new one. */
  endpoint?: EndpointRow;
  session: ConsoleSession;
  onSave: (values: EndpointValues) => Promise<void>;
  onClose: () => void;
}): JSX.Element {
  const types = useEventTypes(session);
  const [events, setEvents] = useState<readonly string[]>(endpoint?.events ?? [EVERY_EVENT]);
  const [filter, setFilter] = useState(() => shownFilter(endpoint));
  // Operators set the attempts, and the identity of a new endpoint.
  const isConsole = session.kind === 'console';
  const hasIdentity = endpoint === undefined && isConsole;
  const { retry: ownRetry, rateLimit, concurrency, onDead } = endpoint?.settings ?? {};
  const mayManageSecrets = session.capabilities.includes('manage-secrets');
  const check = checkFilter(filter, types ?? [], events);
  return (
    <FormDialog
      title={title}
      verb={TEXT.save}
      disabled={types === undefined || check.problem !== undefined}
      onClose={onClose}
      run={async (values) => {
        if (events.length === 0) throw new Error(TEXT.noEvents);
        const { id, tenant, url = '', description } = values;
        const retry = { ...ownRetry, ...(isConsole && { attempts: numberOf(values['attempts']) }) };
        // In the order of the stored one, with which it is compared.
        const [perSecond, burst] = [numberOf(values['perSecond']), numberOf(values['burst'])];
        const limit = { ...rateLimit, perSecond, burst };
        await onSave({
          id,
          tenant,
          url,
          description,
          events,
          filter: check.filter,
          onDead: values['onDead'] as NewEndpointRequest['onDead'],
          retry: filled(retry),
          concurrency: numberOf(values['concurrency']),
          // The server refuses a burst alone.
          rateLimit: filled(limit) as NewEndpointRequest['rateLimit'],
          credentials: mayManageSecrets ? credentialsOf(values) : undefined,
        });
        return TEXT.saved;
      }}
    >
      {hasIdentity && (
        <>
          <Field label={TEXT.id}>
            <input name="id" />
          </Field>
          <Field label={STRINGS.labels.tenant}>
            <input name="tenant" />
          </Field>
        </>
      )}
      <Field label={TEXT.url}>
        <input name="url" type="url" required defaultValue={endpoint?.url ?? ''} />
      </Field>
      <Field label={TEXT.description}>
        <input name="description" defaultValue={endpoint?.description ?? ''} />
      </Field>
      {types !== undefined && <Events types={types} chosen={events} onChange={setEvents} />}
      <Field label={TEXT.settings.filter} hint={TEXT.filterHint}>
        <textarea
          rows={Math.max(2, filter.split('\n').length)}
          spellcheck={false}
          value={filter}
          onInput={({ currentTarget }) => setFilter(currentTarget.value)}
        />
      </Field>
      <FilterResult check={check} />
      <Select label={TEXT.settings.onDead} name="onDead" options={TEXT.onDead} selected={onDead} />
      {isConsole && (
        <Field label={TEXT.attempts} hint={TEXT.attemptsHint}>
          <NumberInput name="attempts" min={1} max={100} value={ownRetry?.attempts} />
        </Field>
      )}
      <details open={[concurrency, rateLimit, endpoint?.credentials].some(Boolean)}>
        <summary>{mayManageSecrets ? TEXT.limitsAndCredentials : TEXT.limits}</summary>
        <Field label={TEXT.concurrency} hint={TEXT.unlimited}>
          <NumberInput name="concurrency" min={1} max={1_000} value={concurrency} />
        </Field>
        <div class="pair">
          <Field label={TEXT.perSecond} hint={TEXT.unlimited}>
            <NumberInput
              name="perSecond"
              min={0}
              max={10_000}
              step="any"
              value={rateLimit?.perSecond}
            />
          </Field>
          <Field label={TEXT.burst}>
            <NumberInput name="burst" min={1} max={10_000} value={rateLimit?.burst} />
          </Field>
        </div>
        {mayManageSecrets && <Credentials set={endpoint?.credentials} />}
      </details>
    </FormDialog>
  );
}

/** `undefined` if no member has a value. */
function filled<T extends object>(members: T): T | undefined {
  return Object.values(members).some((one) => one !== undefined) ? members : undefined;
}

function numberOf(value: string | undefined): number | undefined {
  return value === undefined ? undefined : Number(value);
}

function NumberInput({
  value = '',
  step = '1',
  ...attributes
}: {
  name: string;
  min: number;
  max: number;
  step?: string;
  value: number | undefined | '';
}): JSX.Element {
  return <input type="number" step={step} defaultValue={value} {...attributes} />;
}

/** What requests authenticate with besides the signature. It is never shown, so it is kept, removed or replaced. */
function Credentials({ set = [] }: { set?: EndpointRow['credentials'] }): JSX.Element {
  const [kind, setKind] = useState<string>('');
  const isSet = set.length > 0;
  return (
    <fieldset class="whole">
      <legend>{TEXT.credentials}</legend>
      <Select
        label={TEXT.credentialsOf}
        hint={isSet ? TEXT.credentialsSet(set.map((one) => TEXT.credentialKinds[one])) : undefined}
        name="credentials"
        options={{
          '': isSet ? TEXT.credentialsKeep : TEXT.credentialsNone,
          ...TEXT.credentialKinds,
          ...(isSet && { remove: TEXT.credentialsRemove }),
        }}
        onChange={setKind}
      />
      {kind === 'headers' && (
        <Field label={TEXT.secretHeaders} hint={TEXT.secretHeadersHint}>
          <textarea name="headers" rows={2} required spellcheck={false} autocomplete="off" />
        </Field>
      )}
      {kind === 'oauth2' &&
        (['tokenUrl', 'clientId', 'clientSecret', 'scope', 'header'] as const).map((name) => (
          <Field label={TEXT.oauth2[name]} key={name}>
            {name === 'clientSecret' ? (
              <input name={name} type="password" required autocomplete="off" />
            ) : (
              <input name={name} required={name !== 'scope' && name !== 'header'} />
            )}
          </Field>
        ))}
      {kind === 'certificate' && (
        <>
          {(['cert', 'key'] as const).map((name) => (
            <Field label={TEXT.certificate[name]} hint="PEM" key={name}>
              <textarea name={name} rows={3} required spellcheck={false} autocomplete="off" />
            </Field>
          ))}
        </>
      )}
    </fieldset>
  );
}

/** `undefined` keeps them, `null` removes them. */
function credentialsOf(values: Values): EndpointValues['credentials'] {
  const { cert = '', key = '', headers = '' } = values;
  switch (values['credentials']) {
    case 'headers': {
      const lines = headers.split('\n').filter((line) => line.trim() !== '');
      return { headers: Object.fromEntries(lines.map(headerOf)) };
    }
    case 'oauth2': {
      const { tokenUrl = '', clientId = '', clientSecret = '', scope, header } = values;
      return { oauth2: { tokenUrl, clientId, clientSecret, scope, header } };
    }
    case 'certificate':
      return { certificate: { cert, key } };
    case 'remove':
      return null;
    default:
      return undefined;
  }
}

/** `Name: value` */
function headerOf(line: string): [name: string, value: string] {
  const [name = '', ...rest] = line.split(':');
  const value = rest.join(':').trim();
  // Not quoted: a line without a name may be a key.
  if (name.trim() === '' || value === '') throw new Error(TEXT.noSecretHeader);
  return [name.trim(), value];
}

/** The defined events; `undefined` until they are loaded. Without them, the form has names and patterns only. */
function useEventTypes({ features }: ConsoleSession): readonly EventType[] | undefined {
  const [types, setTypes] = useState<readonly EventType[]>();
  useEffect(() => {
    if (!features.eventTypes) return setTypes([]);
    get<EventTypeList>('event-types').then(
      ({ items }) => setTypes(items),
      () => setTypes([]),
    );
  }, []);
  return types;
}

function shownFilter(endpoint: EndpointRow | undefined): string {
  const filter = endpoint?.settings.filter;
  return filter === undefined ? '' : JSON.stringify(filter, undefined, 2);
}

/** Every event, or a choice of the defined ones, and further names and patterns. */
function Events({
  types,
  chosen,
  onChange,
}: {
  types: readonly EventType[];
  chosen: readonly string[];
  onChange: (chosen: readonly string[]) => void;
}): JSX.Element {
  const names = types.map(({ event }) => event);
  const isEvery = chosen.includes(EVERY_EVENT);
  const [defined, setDefined] = useState<readonly string[]>(() =>
    chosen.filter((one) => names.includes(one)),
  );
  const [others, setOthers] = useState(() =>
    chosen.filter((one) => one !== EVERY_EVENT && !names.includes(one)).join(', '),
  );
  const change = (ticked: readonly string[], text: string): void => {
    setDefined(ticked);
    setOthers(text);
    onChange([...new Set([...ticked, ...text.split(/[\s,]+/).filter(Boolean)])]);
  };
  return (
    <fieldset>
      <legend>{TEXT.events}</legend>
      <label class="option">
        <input
          type="checkbox"
          checked={isEvery}
          onChange={() => (isEvery ? change([], others) : onChange([EVERY_EVENT]))}
        />
        <span>{TEXT.everyEvent}</span>
      </label>
      {!isEvery && (
        <>
          {types.map(({ event, description, deprecated }) => {
            const isChosen = defined.includes(event);
            const rest = defined.filter((one) => one !== event);
            return (
              <label class="option" key={event}>
                <input
                  type="checkbox"
                  checked={isChosen}
                  onChange={() => change(isChosen ? rest : [...rest, event], others)}
                />
                <span>
                  {event}{' '}
                  <small>
                    {description} {Boolean(deprecated) && `(${STRINGS.eventTypes.deprecated})`}
                  </small>
                </span>
              </label>
            );
          })}
          <Field label={names.length === 0 ? TEXT.names : TEXT.otherNames} hint={TEXT.eventsHint}>
            <input
              value={others}
              onInput={({ currentTarget }) => change(defined, currentTarget.value)}
            />
          </Field>
        </>
      )}
    </fieldset>
  );
}

/** Whether a filter can be used, and what it does with the examples of the chosen events. */
function FilterResult({ check: { problem, examples } }: { check: FilterCheck }): JSX.Element {
  return (
    <div role="status" class="filter-result">
      {problem !== undefined && <p class="bad-text">{problem}</p>}
      {examples.map(({ event, matches }) => (
        <p key={event} class={matches ? 'good-text' : 'muted'}>
          {matches ? TEXT.matches(event) : TEXT.matchesNot(event)}
        </p>
      ))}
    </div>
  );
}

/** A value that cannot be read again. */
interface ShownOnce {
  readonly title: string;
  readonly note: string;
  readonly text: string;
  /** Names the button that closes its dialog. */
  readonly done: string;
  /** Whether Escape does not close it. */
  readonly staysOpen?: boolean;
}

let addShown: (shown: ShownOnce) => void = () => undefined;

/** Shows a value to copy: also if the user has left the page that it was made on. */
export function showOnce(shown: ShownOnce): void {
  addShown(shown);
}

export function showSecret(text: string): void {
  const { secretTitle: title, secretAsk: note, secretDone: done } = TEXT;
  showOnce({ title, note, text, done, staysOpen: true });
}

/** Where {@link showOnce} shows its values, one at a time. */
export function ShownValues(): JSX.Element | null {
  const [values, setValues] = useState<readonly ShownOnce[]>([]);
  useEffect(() => {
    addShown = (added) => setValues((all) => [...all, added]);
  }, []);
  const [first] = values;
  if (first === undefined) return null;
  const { title, note, text, done, staysOpen = false } = first;
  const onClose = (): void => setValues((all) => all.filter((one) => one !== first));
  return (
    <Dialog title={title} staysOpen={staysOpen} onClose={onClose} key={text}>
      <p>{note}</p>
      <pre tabIndex={0}>{text}</pre>
      <div class="buttons">
        <Copy text={text} />
        <button type="button" class="main" onClick={onClose}>
          {done}
        </button>
      </div>
    </Dialog>
  );
}
