import { pathToRegexp } from 'path-to-regexp';

/** How the application's router compares paths. */
export interface RouterSettings {
  readonly caseSensitive: boolean;
  /** Whether a slash at the end makes another path. */
  readonly strict: boolean;
}

/** Tells whether a request's path is one of a route's, as the router would. */
export type PathMatcher = (path: string) => boolean;

/** Reads a route's path once. */
export function pathMatcher(path: string, settings: RouterSettings): PathMatcher {
  try {
    const { regexp } = pathToRegexp(path, {
      sensitive: settings.caseSensitive,
      trailing: !settings.strict,
    });
    return (candidate) => regexp.test(candidate);
  } catch {
    // The router refuses the path too, and with a better message.
    return () => false;
  }
}
