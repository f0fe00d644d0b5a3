import type { AxiosRequestConfig } from 'axios';

/** What decides over which connection a request leaves. */
const DECISIVE = [
  'adapter',
  'httpAgent',
  'httpsAgent',
  'httpVersion',
  'maxRedirects',
  'proxy',
  'socketPath',
  'transport',
] as const satisfies readonly (keyof AxiosRequestConfig)[];

/**
 * Finds by which setting an interceptor of the application has led a request round the egress guard.
 *
 * @param asked - the settings the request was made with
 * @param outcome - the answer or the error, which axios gives the settings that were used
 * @returns the name of the setting; `undefined` where there is none, or where the outcome does not tell
 */
export function guardBypass(asked: AxiosRequestConfig, outcome: unknown): string | undefined {
  try {
    const { config } = outcome as { config?: Partial<Record<string, unknown>> };
    if (typeof config !== 'object' || config === null) return undefined;
    return DECISIVE.find((name) => name in asked && config[name] !== asked[name]);
  } catch {
    // Anything can be given or thrown, also what throws when it is looked at.
    return undefined;
  }
}
