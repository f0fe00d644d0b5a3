import { RequestMethod, VERSION_NEUTRAL, VersioningType } from '@nestjs/common';
import type { ApplicationConfig } from '@nestjs/core';

/** The part of the application's configuration that decides where a path is mounted. */
type PathConfiguration = Pick<
  ApplicationConfig,
  'getGlobalPrefix' | 'getGlobalPrefixOptions' | 'getVersioning'
>;

/**
 * The absolute paths of a receiver: under the global prefix, unless excluded from it, and under the default versions if the
 * application uses URI versioning.
 *
 * @param path - without a slash at either end
 * @returns absolute paths without a trailing slash
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
