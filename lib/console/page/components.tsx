import type { ComponentChildren, JSX } from 'preact';
import { useEffect, useState } from 'preact/hooks';
import type { ApiError } from './api.js';
import { dateTime, relative } from './format.js';
import type { Loaded } from './live.js';
import { linkTo, type Route } from './route.js';
import { STRINGS } from './strings.js';

export type Tone = 'good' | 'bad' | 'wait' | 'plain';

let brandName = '';

/** Sets what the title of every page ends with. */
export function setBrandName(name: string): void {
  brandName = name;
}

/** The heading of a page, which is its title too. */
export function Title({ text, children }: { text: string; children?: ComponentChildren }) {
  useEffect(() => {
    document.title = `${text} · ${brandName}`;
  }, [text]);
  return (
    <div class="title">
      <h1>{text}</h1>
      {children}
    </div>
  );
}

/** How long ago, or until when; the title has the exact time. */
export function Time({ at }: { at: string }): JSX.Element {
  return (
    <time dateTime={at} title={`${dateTime(at)} (${at})`}>
      {relative(at)}
    </time>
  );
}

/** A state with a colour; the word carries the meaning. */
export function Pill({ tone, children }: { tone: Tone; children: string }): JSX.Element {
  return <span class={`pill ${tone}`}>{children}</span>;
}

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
          <button type="button" class="quiet" onClick={reload}>
            {STRINGS.retryLoad}
          </button>
        </div>
      )}
      {data === undefined ? error === undefined && <Skeleton /> : children(data)}
    </>
  );
}

function Skeleton(): JSX.Element {
  return (
    <div class="skeleton" aria-busy="true">
      <span class="hidden">{STRINGS.loading}</span>
      <i />
      <i />
      <i />
      <i />
    </div>
  );
}

/** In place of a list without entries: why, and what to do next. */
export function Empty({ text, next }: { text: string; next?: ComponentChildren }): JSX.Element {
  return (
    <div class="empty">
      <p>{text}</p>
      {next !== undefined && <p>{next}</p>}
    </div>
  );
}

/** In place of a list without entries: as {@link Empty}, or how to remove its filters. */
export function NoEntries({
  page,
  query: { after, ...filter },
  ...empty
}: { page: string; query: Route['query'] } & Parameters<typeof Empty>[0]): JSX.Element {
  const isFiltered = Object.keys(filter).length > 0;
  if (!isFiltered && after === undefined) return <Empty {...empty} />;
  const clear = isFiltered && <a href={linkTo(page)}>{STRINGS.search.clear}</a>;
  return <Empty text={STRINGS.empty} next={clear} />;
}

/** A part of a page with a border. */
export function Panel({
  title,
  aside,
  children,
}: {
  title: string;
  aside?: ComponentChildren;
  children: ComponentChildren;
}): JSX.Element {
  return (
    <section class="panel">
      <div class="panel-head">
        <h2>{title}</h2>
        {aside}
      </div>
      {children}
    </section>
  );
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

export function Choice({
  label,
  options,
  chosen,
}: {
  label: string;
  options: readonly { readonly name: string; readonly value: string; readonly href: string }[];
  chosen: string;
}): JSX.Element {
  return (
    <div class="choice" role="group" aria-label={label}>
      {options.map(({ name, value, href }) => (
        <a key={value} href={href} aria-current={value === chosen ? 'true' : undefined}>
          {name}
        </a>
      ))}
    </div>
  );
}

export function Copy({
  text,
  label = STRINGS.copy,
}: {
  /** A function finds out what to copy, and what to say about it. */
  text: string | (() => Promise<{ text: string; message: string }>);
  label?: string;
}): JSX.Element {
  const copy = async (): Promise<void> => {
    try {
      // Only pages of a secure origin have it.
      if (!('clipboard' in navigator)) throw new Error(STRINGS.noClipboard);
      const copied = typeof text === 'string' ? { text, message: STRINGS.copied } : await text();
      await navigator.clipboard.writeText(copied.text);
      toast(copied.message, 'good');
    } catch (error) {
      toast(messageOf(error), 'bad');
    }
  };
  return (
    <button type="button" class="quiet small" onClick={() => void copy()}>
      {label}
    </button>
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
}): JSX.Element | null {
  if (after === undefined && next === undefined) return null;
  return (
    <p class="paging">
      {after !== undefined && <a href={linkTo(page, undefined, filter)}>{STRINGS.newest}</a>}
      {next !== undefined && (
        <a href={linkTo(page, undefined, { ...filter, after: next })}>{STRINGS.older}</a>
      )}
    </p>
  );
}

/** A message about an action. */
interface Toast {
  readonly id: number;
  readonly text: string;
  readonly tone: Tone;
}

const TOAST_MS = 6_000;
let nextToast = 0;
let addToast: (toast: Toast) => void = () => undefined;

/** Shows a message about an action, which screen readers read out. */
export function toast(text: string, tone: Tone): void {
  addToast({ id: nextToast++, text, tone });
}

/** Where {@link toast} shows its messages. */
export function Toasts(): JSX.Element {
  const [toasts, setToasts] = useState<readonly Toast[]>([]);
  const remove = (id: number): void => setToasts((all) => all.filter((one) => one.id !== id));
  useEffect(() => {
    addToast = (added) => {
      setToasts((all) => [...all.slice(-3), added]);
      // A failure stays until it is read.
      if (added.tone !== 'bad') setTimeout(() => remove(added.id), TOAST_MS);
    };
  }, []);
  return (
    <div class="toasts" role="status">
      {toasts.map(({ id, text, tone }) => (
        <div class={`toast ${tone}`} key={id}>
          <span>{text}</span>
          <button type="button" class="plain" aria-label={STRINGS.close} onClick={() => remove(id)}>
            ×
          </button>
        </div>
      ))}
    </div>
  );
}

/** What an error says, with what is wrong with each field. */
export function messageOf(error: unknown): string {
  const { message = '', errors = [] } = error as Partial<ApiError>;
  const details = errors.map(({ path, message: text }) =>
    path === '' ? text : `${path}: ${text}`,
  );
  // The message often contains them.
  return [message, ...details.filter((one) => !message.includes(one))].join(' ');
}
