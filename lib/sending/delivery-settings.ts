import type { AxiosRequestConfig } from 'axios';

/** Bytes of an answer that are read; beyond its status it says little. */
const MAX_ANSWER_BYTES = 65_536;

/**
 * Settings of every delivery, whatever the application has set on its HttpService for another purpose: its defaults could replace
 * the Authorization header, send the token elsewhere, or bypass the egress guard.
 */
export const DELIVERY_SETTINGS = {
  responseType: 'arraybuffer',
  decompress: false,
  maxContentLength: MAX_ANSWER_BYTES,
  maxRedirects: 0,
  // A proxy from the environment would bypass the egress guard.
  proxy: false,
  // The attempt has its own deadline; the timeout of axios does not end a slowly dripping answer.
  timeout: 0,
  auth: null,
  baseURL: '',
  // For HTTP/2, axios opens sessions without an agent, and so without the guard.
  httpVersion: 1,
  http2Options: null,
  insecureHTTPParser: false,
  params: null,
  socketPath: null,
  transport: null,
} as const;

/** The settings of a delivery that decide how it is sent, with the agents it is sent through if axios sends it. */
export type DeliverySettings = typeof DELIVERY_SETTINGS &
  Required<Pick<AxiosRequestConfig, 'httpAgent' | 'httpsAgent'>>;

/** Settings that decide which address a request is sent to. */
const DECISIVE = [
  'httpAgent',
  'httpsAgent',
  'httpVersion',
  'maxRedirects',
  'proxy',
  'socketPath',
  'transport',
];

/** All settings of a delivery, and those that only the HTTP adapter of axios supports. */
const SENT_WITH = [
  ...Object.keys(DELIVERY_SETTINGS),
  'httpAgent',
  'httpsAgent',
  'maxRate',
  'onUploadProgress',
  'onDownloadProgress',
];

/** Whether interceptors and defaults have left the settings of a delivery as they are, and added none. */
export function isUnchanged(config: AxiosRequestConfig, settings: DeliverySettings): boolean {
  const { data } = config as { readonly data?: unknown };
  return (
    (data === undefined || Buffer.isBuffer(data)) &&
    changedSetting(config, settings, SENT_WITH) === undefined
  );
}

/** A warning for a response that an interceptor of the application has replaced by something else. */
export const UNREADABLE =
  'HttpService did not return an Axios response (malformed_response), so every delivery is retried: an interceptor probably returns response.data. Pass the publisher an HttpService without it ("httpModule").';

/**
 * A warning if an interceptor of the application made a request bypass the egress guard, perhaps on purpose: for a proxy.
 *
 * @param outcome - the response or the error, to which axios attaches the settings that were used
 */
export function bypassWarning(asked: AxiosRequestConfig, outcome: unknown): string | undefined {
  try {
    const { config } = outcome as { config?: object };
    if (typeof config !== 'object') return undefined;
    const names = asked.adapter === undefined ? DECISIVE : ['adapter', ...DECISIVE];
    const changed = changedSetting(config, asked, names);
    return changed === undefined
      ? undefined
      : `An interceptor of HttpService replaces ${changed}: the egress guard checks the URLs of deliveries, but cannot check the addresses they are sent to. If this is not intended, pass the publisher an HttpService without the interceptor ("httpModule").`;
  } catch {
    // Reading a thrown value may throw.
    return undefined;
  }
}

/** Returns the first of the named settings that has another value; a missing one is as good as `null`, `0` or `false`. */
function changedSetting(
  config: object,
  settings: object,
  names: readonly string[],
): string | undefined {
  const [actual, expected] = [config, settings] as readonly Partial<Record<string, unknown>>[];
  return names.find((name) => (actual![name] || null) !== (expected![name] || null));
}
