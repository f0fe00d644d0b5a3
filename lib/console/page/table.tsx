import type { ComponentChildren, JSX } from 'preact';
import { useEffect, useRef, useState } from 'preact/hooks';
import { takeReturn } from './route.js';
import { STRINGS } from './strings.js';

export interface Column<Row> {
  readonly name: string;
  readonly cell: (row: Row) => ComponentChildren;
  /** Numbers are aligned to the right. */
  readonly isNumber?: boolean;
}

/** A table; on a phone, a card for each row. With `selection`, its rows can be chosen. */
export function Table<Row>({
  caption,
  columns,
  rows,
  keyOf,
  nameOf = keyOf,
  selection,
}: {
  caption: string;
  columns: readonly (Column<Row> | false)[];
  rows: readonly Row[];
  keyOf: (row: Row, index: number) => string;
  /** Names a row for screen readers. */
  nameOf?: (row: Row, index: number) => string;
  selection?: Selection | undefined;
}): JSX.Element {
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
                    aria-label={STRINGS.select(nameOf(row, index))}
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
