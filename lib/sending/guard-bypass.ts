import type { AxiosRequestConfig } from 'axios';
import { NEUTRAL } from './request-config.js';

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
    const wanted = asked as Partial<Record<string, unknown>>;
    return DECISIVE.find(
      (name) => isAsked(name, asked) && settingOf(config, name) !== settingOf(wanted, name),
    );
  } catch {
    // Anything can be given or thrown, also what throws when it is looked at.
    return undefined;
  }
}

/** An adapter is not asked for where the application has set its own. */
function isAsked(name: keyof AxiosRequestConfig, asked: AxiosRequestConfig): boolean {
  return name !== 'adapter' || name in asked;
}

/** What is not said is neutral. */
function settingOf(config: Partial<Record<string, unknown>>, name: string): unknown {
  return config[name] ?? (NEUTRAL as Partial<Record<string, unknown>>)[name];
}
