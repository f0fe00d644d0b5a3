import type { JSX } from 'preact';
import { useEffect, useRef } from 'preact/hooks';
import { Choice, messageOf, toast } from './components.js';
import { clockTime, now } from './format.js';
import { linkTo, type Route } from './route.js';
import { STRINGS } from './strings.js';

const TEXT = STRINGS.search;

/** Presets of the time range, in milliseconds. */
export const RANGES = { '1h': 3_600_000, '24h': 86_400_000, '7d': 604_800_000 } as const;

/** A filter of a list: its name in the URL and in the search field, and values to suggest. */
interface Filter<Row> {
  readonly name: string;
  readonly label: string;
  /** Shown names of the values, if there are only these. */
  readonly choices?: Readonly<Record<string, string>>;
  /** The member of the listed rows whose values are suggested, if there are no choices. */
  readonly suggest?: keyof Row;
  /** Whether a word without a name is a value of it. */
  readonly accepts?: (word: string) => boolean;
}

/** One search field, a chip for each filter, presets of the time, and the values of the main filter. */
export function SearchBar<Row>({
  page,
  rows = [],
  filters: given,
  main,
  query: { after: _after, ...values },
  hasTime = true,
}: {
  page: string;
  rows: readonly Row[] | undefined;
  /** `false` leaves one out. */
  filters: readonly (Filter<Row> | false)[];
  /** The filter whose values are always shown; absent if it has too many. */
  main?: Filter<Row>;
  query: Route['query'];
  hasTime?: boolean;
}): JSX.Element {
  const field = useRef<HTMLInputElement>(null);
  useEffect(() => {
    const focus = (event: KeyboardEvent): void => {
      const isTyping = event.target instanceof Element && event.target.closest('input, dialog');
      if (event.key !== '/' || isTyping) return;
      event.preventDefault();
      field.current?.focus();
    };
    addEventListener('keydown', focus);
    return () => removeEventListener('keydown', focus);
  }, []);
  const filters = given.filter((filter) => filter !== false);
  const all = main === undefined ? filters : [main, ...filters];
  const link = (changes: Readonly<Record<string, string | undefined>>): string =>
    linkTo(page, undefined, { ...values, ...changes });
  const chips = Object.entries(values).filter(([name]) => name !== main?.name && name !== 'last');
  return (
    <search>
      <form
        class="search"
        onSubmit={(event) => {
          event.preventDefault();
          const input = field.current!;
          try {
            location.hash = link(readSearch(input.value, all, hasTime));
            input.value = '';
          } catch (error) {
            toast(messageOf(error), 'bad');
          }
        }}
      >
        <input
          ref={field}
          type="search"
          aria-label={TEXT.label}
          placeholder={TEXT.hint(filters.map(({ name }) => name))}
          list="suggestions"
          autocomplete="off"
          spellcheck={false}
        />
        <datalist id="suggestions">
          {filters.flatMap((filter) =>
            suggestionsOf(filter, rows).map((value) => (
              <option value={`${filter.name}:${quoted(value)}`} key={value} />
            )),
          )}
        </datalist>
        {hasTime && (
          <Choice
            label={TEXT.time}
            chosen={values['since'] || values['until'] ? 'custom' : (values['last'] ?? '')}
            options={['1h', '24h', '7d', ''].map((value) => ({
              value,
              name: value === '' ? TEXT.anyTime : TEXT.ranges[value as keyof typeof RANGES],
              href: link({ last: value, since: undefined, until: undefined }),
            }))}
          />
        )}
      </form>
      <div class="chips">
        {main !== undefined && (
          <Choice
            label={main.label}
            chosen={values[main.name] ?? ''}
            options={['', ...Object.keys(main.choices ?? {})].map((value) => ({
              value,
              name: value === '' ? STRINGS.all : main.choices![value]!,
              href: link({ [main.name]: value }),
            }))}
          />
        )}
        {chips.map(([name, value]) => {
          const filter = all.find((one) => one.name === name);
          const label = filter?.label ?? TEXT.times[name as 'since' | 'until'] ?? name;
          const isTime = name === 'since' || name === 'until';
          return (
            <a class="chip" key={name} href={link({ [name]: undefined })}>
              <span>{label}</span>{' '}
              <strong>
                {isTime ? clockTime(value) : (filter?.choices?.[value] ?? quoted(value))}
              </strong>
              <span class="hidden">{TEXT.remove}</span>
              <span aria-hidden="true">×</span>
            </a>
          );
        })}
        {chips.length > 1 && (
          <a class="chip" href={linkTo(page)}>
            {TEXT.clear}
          </a>
        )}
      </div>
    </search>
  );
}

function suggestionsOf<Row>({ choices, suggest }: Filter<Row>, rows: readonly Row[]): string[] {
  if (suggest === undefined) return Object.keys(choices ?? {});
  const values = rows.map((row) => row[suggest] as string | undefined);
  return [...new Set(values)].filter((value) => value !== undefined);
}

/** A word, or `"several words"`, with or without a name of a filter before it. */
const WORDS = /(?:(\w+):)?(?:"((?:[^"\\]|\\.)*)"(?!\S)|(\S+))/g;

/** As {@link readSearch} reads it: in quotes if it is not one word. */
function quoted(value: string): string {
  return /[\s"]/.test(value) ? `"${value.replace(/["\\]/g, '\\$&')}"` : value;
}

/**
 * Reads `endpoint:crm tenant:"Acme Ltd" order.paid` as filters; a word that fits none is one of the first that accepts it.
 *
 * @throws Error if a filter is unknown
 */
function readSearch(
  text: string,
  filters: readonly Omit<Filter<unknown>, 'suggest'>[],
  hasTime: boolean,
): Record<string, string> {
  const found: Record<string, string> = {};
  for (const [word, name, inQuotes, plain] of text.matchAll(WORDS)) {
    const value = inQuotes?.replace(/\\(.)/g, '$1') ?? plain!;
    const named = filters.find((one) => one.name.toLowerCase() === name?.toLowerCase());
    if (named !== undefined) {
      const choices = Object.entries(named.choices ?? {});
      found[named.name] = choices.find(([, label]) => label === value)?.[0] ?? value;
      continue;
    }
    const isTime = hasTime && (name === 'since' || name === 'until');
    const time = isTime ? new Date(localTime(value)) : undefined;
    if (time !== undefined && !Number.isNaN(time.getTime())) {
      // With its time zone, so that the URL means the same to others.
      found[name!] = time.toISOString();
      continue;
    }
    if (name !== undefined) {
      const names = [...filters.map((one) => one.name), ...(hasTime ? ['since', 'until'] : [])];
      throw new Error(TEXT.unknown(word, names));
    }
    const accepting = filters.find(({ accepts }) => accepts?.(value));
    if (accepting !== undefined) found[accepting.name] = value;
  }
  return found;
}

/** A date without a time is one of the user's time zone, not of UTC. */
function localTime(value: string): string {
  return /^\d{4}-\d\d-\d\d$/.test(value) ? `${value}T00:00` : value;
}

/** The query of a URL as the API takes it: a preset of the time becomes its start. */
export function requestOf({ last, ...filter }: Route['query']): Record<string, string> {
  const { since, until } = filter;
  if (last === undefined || !Object.hasOwn(RANGES, last) || since || until) return filter;
  const length = RANGES[last as keyof typeof RANGES];
  // To the minute, so that views of about the same time ask for the same.
  const start = Math.floor((now() - length) / 60_000) * 60_000;
  return { ...filter, since: new Date(start).toISOString() };
}
