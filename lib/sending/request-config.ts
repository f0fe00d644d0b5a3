import type { AxiosAdapter, AxiosRequestConfig, CancelToken, GenericAbortSignal } from 'axios';
import type { GuardedAgents } from '../egress/guarded-agent.js';
import type { ComposedRequest } from './request.composer.js';

/** Bytes of an answer that are read; beyond its status it says little. */
const MAX_ANSWER_BYTES = 65_536;

/** The defaults that the application has set on its HttpService. */
export type HttpDefaults = Partial<Record<string, unknown>>;

/** How a request is sent. */
interface RequestMeans {
  readonly agents: GuardedAgents;
  /** Absent if the application has set its own, which is not replaced. */
  readonly adapter?: AxiosAdapter | 'http' | undefined;
  readonly defaults: HttpDefaults;
}

/**
 * The request config for HttpService, which ensures that a delivery is sent to its destination only, whatever else the
 * application uses HttpService for.
 *
 * axios spends about a microsecond on each setting (benchmark `send`), so defaults are not repeated.
 */
export function requestConfig(
  { method, url, headers, body }: ComposedRequest,
  signal: GenericAbortSignal,
  { agents, adapter, defaults }: RequestMeans,
): AxiosRequestConfig {
  const config: AxiosRequestConfig = {
    method,
    url,
    headers,
    transformRequest: [],
    // Parsing JSON would fail on an empty 204, and an acknowledged event would be sent again.
    transformResponse: [],
    responseType: 'arraybuffer',
    validateStatus: anyStatus,
    decompress: false,
    maxContentLength: MAX_ANSWER_BYTES,
    maxBodyLength: Infinity,
    maxRedirects: 0,
    // A proxy from the environment would bypass the egress guard.
    proxy: false,
    httpAgent: agents.httpAgent,
    httpsAgent: agents.httpsAgent,
    // The attempt's own deadline: the timeout of axios does not end a slowly dripping answer.
    signal,
    timeout: 0,
    cancelToken: NEVER_CANCELLED,
  };
  // Without a body, `data` must be absent: axios would send '' as `""` and null as `null`.
  if (body !== undefined) config.data = body;
  if (adapter !== undefined) config.adapter = adapter;
  for (const name of SET_ASIDE) {
    if (defaults[name] !== undefined && defaults[name] !== null)
      Object.assign(config, { [name]: NEUTRAL[name] });
  }
  return config;
}

/**
 * Defaults that an application may have set on its HttpService for another purpose, and that would replace the
 * Authorization header, send the token elsewhere, or bypass the egress guard. For HTTP/2, axios opens sessions without an
 * agent, and so without the guard.
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
 * Without it, HttpService creates a cancel token and cancels it after every success, which creates an error with a stack for
 * nothing (benchmark `send`). Attempts are cancelled by their signal. A class instance, because axios copies plain objects.
 */
class NeverCancelled {
  readonly promise = new Promise<never>(() => {});
  throwIfRequested(): void {}
  subscribe(): void {}
  unsubscribe(): void {}
}
const NEVER_CANCELLED = new NeverCancelled() as unknown as CancelToken;

/** The settings that determine the connection of a request. */
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
 * Finds the setting with which an interceptor of the application made a request bypass the egress guard.
 *
 * @param asked - the settings the request was made with
 * @param outcome - the response or the error, to which axios attaches the settings that were used
 * @returns the name of the setting; `undefined` if there is none, or if the outcome does not show it
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
    // Reading a thrown value may throw.
    return undefined;
  }
}

/** No adapter is requested if the application has set its own. */
function isAsked(name: keyof AxiosRequestConfig, asked: AxiosRequestConfig): boolean {
  return name !== 'adapter' || name in asked;
}

/** Missing settings are neutral. */
function settingOf(config: Partial<Record<string, unknown>>, name: string): unknown {
  return config[name] ?? (NEUTRAL as Partial<Record<string, unknown>>)[name];
}
