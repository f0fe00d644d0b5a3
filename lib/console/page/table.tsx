import type { ComponentChildren, JSX } from 'preact';
import { useEffect, useRef, useState } from 'preact/hooks';
import { Content, NoEntries, Pager } from './components.js';
import type { Loaded } from './live.js';
import { takeReturn, type Route } from './route.js';
import { STRINGS } from './strings.js';

export interface Column<Row> {
  readonly name: string;
  readonly cell: (row: Row) => ComponentChildren;
  /** Numbers are aligned to the right. */
  readonly isNumber?: boolean;
}

interface TableProps<Row> {
  caption: string;
  columns: readonly (Column<Row> | false)[];
  rows: readonly Row[];
  keyOf: (row: Row) => string;
  selection?: Selection | undefined;
}

/** A page of a list with links to others, or what to show in place of one without entries. */
export function List<Data extends ListPage>({
  page,
  query,
  loaded,
  empty,
  emptyNext,
  above,
  ...table
}: Omit<TableProps<Data['items'][number]>, 'rows' | 'keyOf'> & {
  /** Its name in the URL. */
  page: string;
  query: Route['query'];
  loaded: Loaded<Data>;
  empty: string;
  /** What to do next, if it is empty. */
  emptyNext?: string;
  above?: (data: Data) => ComponentChildren;
}): JSX.Element {
  return (
    <Content loaded={loaded}>
      {(data) => (
        <>
          {above?.(data)}
          {data.items.length === 0 ? (
            <NoEntries page={page} query={query} text={empty} next={emptyNext} />
          ) : (
            <Table {...table} rows={data.items} keyOf={({ id }) => id} />
          )}
          <Pager page={page} query={query} next={data.next} />
        </>
      )}
    </Content>
  );
}

interface ListPage {
  readonly items: readonly { readonly id: string }[];
  readonly next?: string | undefined;
}

/** A table; on a phone, a card for each row. With `selection`, its rows can be chosen. */
export function Table<Row>({
  caption,
  columns,
  rows,
  keyOf,
  selection,
}: TableProps<Row>): JSX.Element {
  const element = useRef<HTMLTableElement>(null);
  useEffect(() => {
    const id = takeReturn();
    // Back on the list, on the row that was opened.
    const row = [...(element.current?.rows ?? [])].find((one) => one.dataset['key'] === id);
    row?.querySelector('a')?.focus();
  }, []);
  const shown = columns.filter((column) => column !== false);
  const keys = rows.map(keyOf);
  return (
    <div class="scroll" role="region" aria-label={caption} tabIndex={0}>
      <table ref={element}>
        <caption>{caption}</caption>
        <thead>
          <tr>
            {selection !== undefined && (
              <th scope="col" class="check">
                <input
                  type="checkbox"
                  aria-label={STRINGS.selectAll}
                  checked={keys.length > 0 && keys.every((key) => selection.has(key))}
                  onChange={({ currentTarget }) => selection.set(keys, currentTarget.checked)}
                />
              </th>
            )}
            {shown.map(({ name, isNumber }) => (
              <th scope="col" key={name} class={isNumber ? 'number' : ''}>
                {name}
              </th>
            ))}
          </tr>
        </thead>
        <tbody>
          {rows.map((row, index) => (
            <tr key={keys[index]} data-key={keys[index]}>
              {selection !== undefined && (
                <td class="check">
                  <input
                    type="checkbox"
                    aria-label={STRINGS.select(keys[index]!)}
                    checked={selection.has(keys[index]!)}
                    onChange={({ currentTarget }) =>
                      selection.set([keys[index]!], currentTarget.checked)
                    }
                  />
                </td>
              )}
              {shown.map(({ name, cell, isNumber }) => {
                const content = cell(row);
                const isEmpty = content === undefined || content === '';
                const kind = `${isNumber ? 'number' : ''} ${isEmpty ? 'none' : ''}`;
                return (
                  <td key={name} data-label={name} class={kind}>
                    {content}
                  </td>
                );
              })}
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
  readonly set: (ids: readonly string[], isChosen: boolean) => void;
  readonly clear: () => void;
}

export function useSelection(): Selection {
  const [chosen, setChosen] = useState<ReadonlySet<string>>(new Set());
  return {
    has: (id) => chosen.has(id),
    among: (rows) => rows.map(({ id }) => id).filter((id) => chosen.has(id)),
    set: (ids, isChosen) =>
      setChosen((before) => {
        const next = new Set(before);
        for (const id of ids) {
          if (isChosen) next.add(id);
          else next.delete(id);
        }
        return next;
      }),
    clear: () => setChosen(new Set()),
  };
}
