import { RequestMethod, VERSION_NEUTRAL, VersioningType } from '@nestjs/common';
import type { ApplicationConfig } from '@nestjs/core';

/** The application's configuration, as far as it decides where a path is. */
type PathConfiguration = Pick<
  ApplicationConfig,
  'getGlobalPrefix' | 'getGlobalPrefixOptions' | 'getVersioning'
>;

/**
 * Where a mounted path is found: under the global prefix, unless it is excluded from it, and under the
 * default versions where the application puts versions into the URI.
 *
 * @param path - without a slash at either end
 * @returns absolute paths without a slash at the end
 */
export function mountPaths(path: string, config: PathConfiguration): string[] {
  const prefix = isExcluded(path, config) ? '' : trim(config.getGlobalPrefix());
  return versionSegments(config).map((version) =>
    ['', prefix, version, path].filter((part, i) => i === 0 || part !== '').join('/'),
  );
}

function isExcluded(path: string, config: PathConfiguration): boolean {
  const { exclude = [] } = config.getGlobalPrefixOptions();
  return exclude.some(
    ({ pathRegex, requestMethod }) =>
      [RequestMethod.ALL, RequestMethod.POST, RequestMethod.HEAD].includes(requestMethod) &&
      new RegExp(pathRegex.source, pathRegex.flags).test(`/${path}`),
  );
}

function versionSegments(config: PathConfiguration): string[] {
  const versioning = config.getVersioning();
  if (versioning?.type !== VersioningType.URI || versioning.defaultVersion === undefined)
    return [''];
  const versions = [versioning.defaultVersion].flat();
  const prefix = versioning.prefix === false ? '' : (versioning.prefix ?? 'v');
  return versions.map((version) =>
    version === VERSION_NEUTRAL ? '' : `${prefix}${String(version)}`,
  );
}

function trim(path: string): string {
  return path.replace(/^\/+|\/+$/g, '');
}
