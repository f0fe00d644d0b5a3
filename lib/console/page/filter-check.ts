import { FILTER, matchesFilter } from '../../endpoints/endpoint-filter.js';
import { Problems } from '../../options/problems.js';
import { matchesEvent } from '../../token/event-name.js';
import type { EventTypeList } from '../console-api.js';
import { parseJson } from './format.js';
import { STRINGS } from './strings.js';

export interface FilterCheck {
  /** Absent without a filter, or if it cannot be used. */
  readonly filter?: object;
  readonly problem?: string;
  readonly examples: readonly { readonly event: string; readonly matches: boolean }[];
}

/** Checks a filter with the code that the server runs, against the examples of the chosen events. */
export function checkFilter(
  text: string,
  types: EventTypeList['items'],
  chosen: readonly string[],
): FilterCheck {
  if (text.trim() === '') return { examples: [] };
  const parsed = parseJson(text);
  if (parsed === undefined) return { problem: STRINGS.endpoints.noJson, examples: [] };
  const found = new Problems();
  const filter = FILTER(parsed, found, 'filter');
  const [problem] = found.all;
  if (problem !== undefined) {
    return { problem: `${problem.path}: ${problem.message}`, examples: [] };
  }
  const shown = types.filter(
    ({ event, example }) =>
      example !== undefined && chosen.some((pattern) => matchesEvent(pattern, event)),
  );
  return {
    filter,
    examples: shown.map(({ event, example }) => ({
      event,
      matches: matchesFilter(filter, event, example),
    })),
  };
}
