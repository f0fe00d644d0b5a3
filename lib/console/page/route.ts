import { useEffect, useState } from 'preact/hooks';
import type { ConsoleSession } from '../console-api.js';
import { type Query, searchOf } from './api.js';

/** Where the page is: everything is in the fragment, so a URL can be shared. */
export interface Route {
  /** First segment: `deliveries`, `endpoints`, `inbox` … */
  readonly page: string;
  /** Second segment, decoded. */
  readonly id: string | undefined;
  readonly query: Readonly<Record<string, string>>;
}

/** What a section of the page is rendered from. */
export interface ViewProps {
  readonly session: ConsoleSession;
  readonly route: Route;
}

/** The last query of each list, for the way back from one of its entries. */
const lastQueries = new Map<string, Route['query']>();
let shown: Route | undefined;
/** The entry that the user came from, while its list is loaded. */
let returnedFrom: string | undefined;

/** Reads the fragment of the current URL. */
function currentRoute(): Route {
  const [path = '', search = ''] = location.hash.replace(/^#\/?/, '').split('?', 2);
  const [page = '', id] = path.split('/', 2);
  const query = Object.fromEntries(new URLSearchParams(search));
  if (id === undefined) lastQueries.set(page, query);
  const route = { page, id: id === undefined ? undefined : decode(id), query };
  const isReturn = route.id === undefined && shown?.page === page;
  returnedFrom = isReturn ? shown?.id : undefined;
  shown = route;
  return route;
}

/** The entry from which the user has come back to its list; `undefined` the second time. */
export function takeReturn(): string | undefined {
  const id = returnedFrom;
  returnedFrom = undefined;
  return id;
}

/** Link to a list as it was last shown: with its filters. */
export function linkBack(page: string): string {
  return linkTo(page, undefined, lastQueries.get(page));
}

/** Returns a function that follows a link, unless the user has left the page meanwhile. */
export function navigation(): (link: string) => void {
  const { hash } = location;
  return (link) => {
    if (location.hash === hash) location.hash = link;
  };
}

function decode(segment: string): string {
  try {
    return decodeURIComponent(segment);
  } catch {
    return segment;
  }
}

/** Link to a part of the page; members without a value are left out. */
export function linkTo(page: string, id?: string, query: Query = {}): string {
  return `#/${page}${id === undefined ? '' : `/${encodeURIComponent(id)}`}${searchOf(query)}`;
}

/** The current route, which changes with the fragment. */
export function useRoute(): Route {
  const [route, setRoute] = useState(currentRoute);
  useEffect(() => {
    const update = (): void => setRoute(currentRoute());
    addEventListener('hashchange', update);
    return () => removeEventListener('hashchange', update);
  }, []);
  return route;
}
