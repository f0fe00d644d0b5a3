import { useEffect, useState } from 'preact/hooks';

/** Where the page is: everything is in the fragment, so a URL can be shared. */
export interface Route {
  /** First segment: `deliveries`, `endpoints`, `inbox` … */
  readonly page: string;
  /** Second segment, decoded. */
  readonly id: string | undefined;
  readonly query: Readonly<Record<string, string>>;
}

/** Reads the fragment of the current URL. */
function currentRoute(): Route {
  const [path = '', search = ''] = location.hash.replace(/^#\/?/, '').split('?', 2);
  const [page = '', id] = path.split('/', 2);
  return {
    page,
    id: id === undefined ? undefined : decode(id),
    query: Object.fromEntries(new URLSearchParams(search)),
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
export function linkTo(
  page: string,
  id?: string,
  query: Readonly<Record<string, string | undefined>> = {},
): string {
  const set = Object.entries(query).filter((pair): pair is [string, string] => Boolean(pair[1]));
  const search = set.length === 0 ? '' : `?${new URLSearchParams(set)}`;
  return `#/${page}${id === undefined ? '' : `/${encodeURIComponent(id)}`}${search}`;
}

/** The current route, which changes with the fragment. */
export function useRoute(): Route {
  const [route, setRoute] = useState(currentRoute);
  useEffect(() => {
    const onChange = (): void => setRoute(currentRoute());
    addEventListener('hashchange', onChange);
    return () => removeEventListener('hashchange', onChange);
  }, []);
  return route;
}
