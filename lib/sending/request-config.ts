import type { AxiosAdapter, AxiosRequestConfig, CancelToken } from 'axios';
import type { GuardedAgents } from '../egress/guarded-agent.js';
import type { ComposedRequest } from './request.composer.js';

/** Bytes of an answer that are read; beyond its status it says little. */
const MAX_ANSWER_BYTES = 65_536;

/** What the application has set on its HttpService for every request. */
export type HttpDefaults = Partial<Record<string, unknown>>;

/** What a delivery is sent by. */
interface RequestMeans {
  readonly agents: GuardedAgents;
  /** Absent where the application has one of its own, which is left alone. */
  readonly adapter?: AxiosAdapter | 'http' | undefined;
  readonly defaults: HttpDefaults;
}

/**
 * What HttpService is asked for, so that a delivery goes where it should and nowhere else, whatever else the
 * application uses HttpService for.
 *
 * axios spends about a microsecond on each setting (benchmark `send`), so none is given that says what is so anyway.
 */
export function requestConfig(
  { method, url, headers, body }: ComposedRequest,
  signal: AbortSignal,
  { agents, adapter, defaults }: RequestMeans,
): AxiosRequestConfig {
  const config: AxiosRequestConfig = {
    method,
    url,
    headers,
    transformRequest: [],
    // One that parses JSON fails on an empty 204: the event was taken, and would be sent again.
    transformResponse: [],
    responseType: 'arraybuffer',
    validateStatus: anyStatus,
    decompress: false,
    maxContentLength: MAX_ANSWER_BYTES,
    maxBodyLength: Infinity,
    maxRedirects: 0,
    // A proxy from the environment would connect in our place, past the egress guard.
    proxy: false,
    httpAgent: agents.httpAgent,
    httpsAgent: agents.httpsAgent,
    // The attempt's own deadline; axios' timeout only counts silence, and a dripping answer is none.
    signal,
    timeout: 0,
    cancelToken: NEVER_CANCELLED,
  };
  // Without a body `data` must stay away: axios would send '' as `""` and null as `null`.
  if (body !== undefined) config.data = body;
  if (adapter !== undefined) config.adapter = adapter;
  for (const name of SET_ASIDE) {
    if (defaults[name] !== undefined && defaults[name] !== null)
      Object.assign(config, { [name]: NEUTRAL[name] });
  }
  return config;
}

/**
 * Defaults that an application may have set on its HttpService for another purpose, and that would replace
 * our Authorization, send the token elsewhere, or go round the egress guard. For HTTP/2, axios opens sessions
 * without any agent, and so without the guard.
 */
const NEUTRAL = {
  auth: null,
  baseURL: '',
  http2Options: null,
  httpVersion: 1,
  insecureHTTPParser: false,
  params: null,
  socketPath: null,
  transport: null,
} as const;
const SET_ASIDE = Object.keys(NEUTRAL) as readonly (keyof typeof NEUTRAL)[];

const anyStatus = (): boolean => true;

/**
 * HttpService makes a token of its own otherwise, and cancels with it after every success: an error with a stack for
 * nothing (benchmark `send`). Attempts are cancelled by their signal. It is an instance, for axios copies plain objects.
 */
class NeverCancelled {
  readonly promise = new Promise<never>(() => {});
  throwIfRequested(): void {}
  subscribe(): void {}
  unsubscribe(): void {}
}
const NEVER_CANCELLED = new NeverCancelled() as unknown as CancelToken;

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
