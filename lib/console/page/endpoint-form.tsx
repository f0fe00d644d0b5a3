import type { JSX } from 'preact';
import { useEffect, useState } from 'preact/hooks';
import type { ConsoleSession, EndpointRow, EventTypeList } from '../console-api.js';
import { Dialog, Field, FormDialog } from './action.js';
import { get } from './api.js';
import { Copy } from './components.js';
import { checkFilter, type FilterCheck } from './filter-check.js';
import { STRINGS } from './strings.js';

const TEXT = STRINGS.endpoints;
const EVERY_EVENT = '**';

type EventType = EventTypeList['items'][number];

/** The fields of an endpoint that a user fills in. */
export interface EndpointValues {
  readonly id?: string;
  readonly url?: string;
  readonly events: readonly string[];
  readonly tenant?: string;
  readonly description?: string;
  readonly filter?: object;
  readonly onDead?: string;
  readonly retry?: object;
}

/** Adds or edits an endpoint. */
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
  // Neither of an existing endpoint, nor in the portal.
  const hasIdentity = endpoint === undefined && session.kind === 'console';
  const { attempts: ownAttempts, ...otherRetry } = (endpoint?.settings['retry'] ?? {}) as {
    attempts?: number;
  };
  const check = checkFilter(filter, types ?? [], events);
  return (
    <FormDialog
      title={title}
      verb={TEXT.save}
      disabled={types === undefined || check.problem !== undefined}
      onClose={onClose}
      run={async ({ attempts, ...values }) => {
        if (events.length === 0) throw new Error(TEXT.noEvents);
        const retry = { ...otherRetry, ...(attempts && { attempts: Number(attempts) }) };
        await onSave({
          ...values,
          events,
          ...(check.filter && { filter: check.filter }),
          ...(Object.keys(retry).length > 0 && { retry }),
        });
        return TEXT.saved;
      }}
    >
      {hasIdentity && (
        <>
          <Field label={TEXT.id}>
            <input name="id" />
          </Field>
          <Field label={TEXT.tenant}>
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
      <Field label={TEXT.filter} hint={TEXT.filterHint}>
        <textarea
          rows={Math.max(2, filter.split('\n').length)}
          spellcheck={false}
          value={filter}
          onInput={({ currentTarget }) => setFilter(currentTarget.value)}
        />
      </Field>
      <FilterResult check={check} />
      <Field label={TEXT.settings.onDead}>
        <select name="onDead">
          {Object.entries(TEXT.onDead).map(([value, label]) => (
            <option value={value} key={value} selected={value === endpoint?.settings['onDead']}>
              {label}
            </option>
          ))}
        </select>
      </Field>
      {session.kind === 'console' && (
        <Field label={TEXT.attempts} hint={TEXT.attemptsHint}>
          <input name="attempts" type="number" min="1" max="100" defaultValue={ownAttempts ?? ''} />
        </Field>
      )}
    </FormDialog>
  );
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
  const filter = endpoint?.settings['filter'];
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
  const [others, setOthers] = useState(() =>
    chosen.filter((one) => one !== EVERY_EVENT && !names.includes(one)).join(', '),
  );
  const change = (defined: readonly string[], text: string): void =>
    onChange([...defined, ...text.split(/[\s,]+/).filter(Boolean)]);
  const defined = chosen.filter((one) => names.includes(one));
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
              onInput={({ currentTarget }) => {
                setOthers(currentTarget.value);
                change(defined, currentTarget.value);
              }}
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

/** A new secret, which cannot be read again. */
export function Secret({ secret, onClose }: { secret: string; onClose: () => void }): JSX.Element {
  return (
    <Dialog title={TEXT.secretTitle} staysOpen onClose={onClose}>
      <p>{TEXT.secretAsk}</p>
      <pre tabIndex={0}>{secret}</pre>
      <div class="buttons">
        <Copy text={secret} />
        <button type="button" class="main" onClick={onClose}>
          {TEXT.secretDone}
        </button>
      </div>
    </Dialog>
  );
}
