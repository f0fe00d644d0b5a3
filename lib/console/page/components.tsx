import type { ComponentChildren, JSX } from 'preact';
import { useEffect, useRef, useState } from 'preact/hooks';
import type { ApiError } from './api.js';
import { dateTime } from './format.js';
import type { Loaded } from './live.js';
import { linkTo, type Route } from './route.js';
import { STRINGS } from './strings.js';

/** A date and time; the title has it in UTC. */
export function Time({ at }: { at: string }): JSX.Element {
  return (
    <time dateTime={at} title={at}>
      {dateTime(at)}
    </time>
  );
}

/** A state with a colour; the word carries the meaning. */
export function Badge({ tone, children }: { tone: Tone; children: string }): JSX.Element {
  return <span class={`badge ${tone}`}>{children}</span>;
}

export type Tone = 'good' | 'bad' | 'wait' | 'plain';

/** Shows what was loaded, or why it was not. */
export function Content<T>({
  loaded: { data, error, reload },
  children,
}: {
  loaded: Loaded<T>;
  children: (data: T) => ComponentChildren;
}): JSX.Element {
  return (
    <>
      {error !== undefined && (
        <div class="notice bad" role="alert">
          <p>
            {STRINGS.failed} {error.message}
          </p>
          <button type="button" onClick={reload}>
            {STRINGS.retryLoad}
          </button>
        </div>
      )}
      {data === undefined ? error === undefined && <p>{STRINGS.loading}</p> : children(data)}
    </>
  );
}

/** A row of a table: cells, and the key of the row. */
export interface Row {
  readonly key: string;
  readonly cells: readonly ComponentChildren[];
}

/** A table that scrolls by itself on a narrow screen. With `selection`, its rows can be chosen. */
export function Table({
  caption,
  columns,
  rows,
  selection,
}: {
  caption: string;
  columns: readonly string[];
  rows: readonly Row[];
  selection?: Selection | undefined;
}): JSX.Element {
  if (rows.length === 0) return <p class="empty">{STRINGS.empty}</p>;
  return (
    <div class="scroll" role="region" aria-label={caption} tabIndex={0}>
      <table>
        <caption>{caption}</caption>
        <thead>
          <tr>
            {selection !== undefined && (
              <th scope="col">
                <span class="hidden">{STRINGS.select(STRINGS.all)}</span>
              </th>
            )}
            {columns.map((column) => (
              <th scope="col" key={column}>
                {column}
              </th>
            ))}
          </tr>
        </thead>
        <tbody>
          {rows.map(({ key, cells }) => (
            <tr key={key}>
              {selection !== undefined && (
                <td>
                  <input
                    type="checkbox"
                    aria-label={STRINGS.select(key)}
                    checked={selection.has(key)}
                    onChange={() => selection.toggle(key)}
                  />
                </td>
              )}
              {cells.map((cell, index) => (
                <td key={columns[index]}>{cell}</td>
              ))}
            </tr>
          ))}
        </tbody>
      </table>
    </div>
  );
}

/** Chosen rows of a table. */
export interface Selection {
  readonly has: (id: string) => boolean;
  /** The ids of the chosen ones among the rows that are shown; no action may include a row that the user does not see. */
  readonly among: (rows: readonly { readonly id: string }[]) => readonly string[];
  readonly toggle: (id: string) => void;
  readonly clear: () => void;
}

export function useSelection(): Selection {
  const [ids, setIds] = useState<ReadonlySet<string>>(new Set());
  return {
    has: (id) => ids.has(id),
    among: (rows) => rows.map(({ id }) => id).filter((id) => ids.has(id)),
    toggle: (id) =>
      setIds((before) => {
        const next = new Set(before);
        if (!next.delete(id)) next.add(id);
        return next;
      }),
    clear: () => setIds(new Set()),
  };
}

/** Names and values; values that are absent are left out. */
export function Facts({
  facts,
}: {
  facts: readonly (readonly [name: string, value: ComponentChildren])[];
}): JSX.Element {
  return (
    <dl>
      {facts
        .filter(([, value]) => value !== undefined && value !== '')
        .map(([name, value], index) => (
          // A request may repeat a header.
          <div key={index}>
            <dt>{name}</dt>
            <dd>{value}</dd>
          </div>
        ))}
    </dl>
  );
}

/** A labelled control of a form. */
export function Field({
  label,
  hint,
  children,
}: {
  label: string;
  hint?: string;
  children: ComponentChildren;
}): JSX.Element {
  return (
    <label class="field">
      <span>{label}</span>
      {children}
      {hint !== undefined && <small>{hint}</small>}
    </label>
  );
}

/** A control of a filter form. */
export interface Filter {
  readonly name: string;
  readonly label: string;
  /** Values to choose from; without it, the filter is a text field. */
  readonly choices?: Readonly<Record<string, string>>;
  readonly type?: 'text' | 'datetime-local';
}

/** A form that filters a list; the values are part of the URL. */
export function FilterForm({
  page,
  filters,
  query: { after: _after, ...values },
}: {
  page: string;
  filters: readonly Filter[];
  query: Route['query'];
}): JSX.Element {
  const apply = (chosen: Readonly<Record<string, string>>): void => {
    location.hash = linkTo(page, undefined, chosen);
  };
  return (
    <form
      class="filters"
      key={JSON.stringify(values)}
      onSubmit={(event) => {
        event.preventDefault();
        const chosen = Object.fromEntries(valuesOf(event.currentTarget));
        for (const { name, type } of filters) {
          const time = type === 'datetime-local' ? new Date(chosen[name] ?? '') : undefined;
          // With its time zone, so that the URL means the same to others.
          if (time !== undefined && !Number.isNaN(time.getTime()))
            chosen[name] = time.toISOString();
        }
        apply(chosen);
      }}
    >
      {filters.map(({ name, label, choices, type = 'text' }) => (
        <Field label={label} key={name}>
          {choices === undefined ? (
            <input name={name} type={type as 'text'} defaultValue={shownAs(type, values[name])} />
          ) : (
            <select name={name}>
              <option value="">{STRINGS.all}</option>
              {Object.entries(choices).map(([value, text]) => (
                <option value={value} key={value} selected={value === values[name]}>
                  {text}
                </option>
              ))}
            </select>
          )}
        </Field>
      ))}
      <div class="buttons">
        <button type="submit">{STRINGS.apply}</button>
        <button type="button" class="quiet" onClick={() => apply({})}>
          {STRINGS.reset}
        </button>
      </div>
    </form>
  );
}

/** A value of the URL as a field shows it: a time as local time. */
function shownAs(type: Filter['type'], value = ''): string {
  const time = new Date(value);
  if (type !== 'datetime-local' || Number.isNaN(time.getTime())) return value;
  return new Date(time.getTime() - time.getTimezoneOffset() * 60_000).toISOString().slice(0, 16);
}

/** The filled-in fields of a form. */
export function valuesOf(form: HTMLFormElement): [string, string][] {
  return [...new FormData(form)].flatMap(([name, value]) =>
    typeof value === 'string' && value.trim() !== '' ? [[name, value.trim()]] : [],
  );
}

/** Links to the newest and to older entries of a list, with its filters. */
export function Pager({
  page,
  query: { after, ...filter },
  next,
}: {
  page: string;
  query: Route['query'];
  next: string | undefined;
}): JSX.Element {
  return (
    <p class="paging">
      {after !== undefined && <a href={linkTo(page, undefined, filter)}>{STRINGS.newest}</a>}
      {next !== undefined && (
        <a href={linkTo(page, undefined, { ...filter, after: next })}>{STRINGS.older}</a>
      )}
    </p>
  );
}

/** A modal dialog. It is open while it is rendered; Escape closes it, unless `staysOpen`. */
export function Dialog({
  title,
  staysOpen = false,
  onClose,
  children,
}: {
  title: string;
  staysOpen?: boolean;
  onClose: () => void;
  children: ComponentChildren;
}): JSX.Element {
  const dialog = useRef<HTMLDialogElement>(null);
  useEffect(() => {
    dialog.current?.showModal();
  }, []);
  return (
    <dialog
      ref={dialog}
      aria-labelledby="dialog-title"
      onClose={() => (staysOpen ? dialog.current?.showModal() : onClose())}
    >
      <h2 id="dialog-title">{title}</h2>
      {children}
    </dialog>
  );
}

/** A dialog that asks before something happens. `word`, if set, must be typed first. */
export function Confirm({
  title,
  text,
  word,
  onConfirm,
  onClose,
  children,
}: {
  title: string;
  text: string;
  word?: string;
  onConfirm: (values: Record<string, string>) => void;
  onClose: () => void;
  children?: ComponentChildren;
}): JSX.Element {
  const [typed, setTyped] = useState('');
  return (
    <Dialog title={title} onClose={onClose}>
      <form
        onSubmit={(event) => {
          event.preventDefault();
          onConfirm(Object.fromEntries(valuesOf(event.currentTarget)));
          onClose();
        }}
      >
        <p>{text}</p>
        {children}
        {word !== undefined && (
          <input
            aria-label={text}
            autocomplete="off"
            value={typed}
            onInput={({ currentTarget }) => setTyped(currentTarget.value)}
          />
        )}
        <div class="buttons">
          <button type="submit" disabled={word !== undefined && typed !== word}>
            {STRINGS.confirm}
          </button>
          <button type="button" class="quiet" onClick={onClose}>
            {STRINGS.cancel}
          </button>
        </div>
      </form>
    </Dialog>
  );
}

/** Messages about actions, read out by screen readers. */
export interface Notices {
  readonly element: JSX.Element;
  /** Runs an action, and shows its message or its failure. */
  readonly run: (action: () => Promise<string | undefined>) => Promise<void>;
}

export function useNotices(): Notices {
  const [notice, setNotice] = useState<{ tone: Tone; text: string }>();
  const isBusy = useRef(false);
  return {
    element: (
      <div role="status" class={notice === undefined ? '' : `notice ${notice.tone}`}>
        {notice?.text}
      </div>
    ),
    run: async (action) => {
      // A second click must not repeat an action that is under way.
      if (isBusy.current) return;
      isBusy.current = true;
      setNotice({ tone: 'plain', text: STRINGS.working });
      try {
        const text = await action();
        setNotice(text === undefined ? undefined : { tone: 'good', text });
      } catch (error) {
        const { message, errors } = error as ApiError;
        const details = (errors ?? []).map(({ path, message }) => `${path}: ${message}`);
        setNotice({ tone: 'bad', text: [message, ...details].join(' ') });
      } finally {
        isBusy.current = false;
      }
    },
  };
}
