import type { AxiosRequestConfig, AxiosStatic } from 'axios';
import { AttemptDeadline } from './attempt-deadline.js';

const LEAN = Symbol('nestjs-webhook-token/lean-axios');

/**
 * Creates an axios instance for deliveries. It shares defaults and interceptors with another one, and skips the core of axios
 * while none of them concerns a delivery: merging settings, transforming and wrapping headers costs more than the request
 * (benchmark `send`). Every other request is made by the other instance.
 *
 * @param instance - the instance that HttpService uses by default. Its type is that of the caller: @nestjs/axios 4 names the
 *   declarations of axios for CommonJS, version 12 those for ES modules, and TypeScript treats them as different types
 */
export function leanAxios<Instance extends object>(instance: Instance): Instance {
  const axios = instance as unknown as AxiosStatic;
  const { request } = axios;
  const lean = (...args: Parameters<AxiosStatic>): unknown => axios(...args);
  Object.setPrototypeOf(lean, axios);
  const requestLean = (config: AxiosRequestConfig): Promise<unknown> => {
    const { adapter, signal } = config;
    // Only a delivery has such a signal; its settings are complete.
    if (!(signal instanceof AttemptDeadline)) return axios.request(config);
    // A stand-in for `request`, as tests set, gets every request.
    if (typeof adapter === 'function' && isUntouched(axios) && axios.request === request) {
      return adapter(config as Parameters<typeof adapter>[0]);
    }
    // An interceptor may pass the signal to anything.
    return axios.request({ ...config, signal: signal.signal });
  };
  return Object.assign(lean, { request: requestLean, [LEAN]: true }) as unknown as Instance;
}

/** Whether an axios instance was created by {@link leanAxios}. */
export function isLean(instance: object | undefined): boolean {
  return instance !== undefined && LEAN in instance;
}

/** What an application can change on an axios instance. */
interface Customizable {
  readonly interceptors: { readonly request: unknown; readonly response: unknown };
  readonly defaults: { readonly adapter?: unknown; readonly headers: object };
}

/** Whether no interceptor and no default of the instance concerns deliveries. */
export function isUntouched({ interceptors, defaults }: Customizable): boolean {
  if (!isEmpty(interceptors.request) || !isEmpty(interceptors.response)) return false;
  if (typeof defaults.adapter === 'function') return false;
  for (const name in defaults) {
    const value = defaults[name as keyof typeof defaults];
    if (!OVERRIDDEN.has(name) && value !== undefined) return false;
  }
  return hasNoHeaders(defaults.headers);
}

/** Defaults of axios that a delivery overrides, or that are for browsers. */
const OVERRIDDEN: ReadonlySet<string> = new Set([
  'adapter',
  'env',
  'headers',
  'maxBodyLength',
  'maxContentLength',
  'timeout',
  'transformRequest',
  'transformResponse',
  'transitional',
  'validateStatus',
  'xsrfCookieName',
  'xsrfHeaderName',
]);

function isEmpty(manager: unknown): boolean {
  const { handlers } = manager as { handlers?: readonly unknown[] | null };
  return handlers?.length === 0;
}

/** A delivery has its own Accept and Content-Type. */
function hasNoHeaders(headers: object): boolean {
  const groups = headers as Readonly<Record<string, object>>;
  for (const group in groups) {
    for (const name in groups[group]) {
      if (group !== 'common' || (name !== 'Accept' && name !== 'Content-Type')) return false;
    }
  }
  return true;
}
