import type { DynamicModule, Type } from '@nestjs/common';
import type { HttpService } from '@nestjs/axios';
import type { AxiosRequestConfig } from 'axios';
import { existsSync } from 'node:fs';
import { createRequire } from 'node:module';
import { isAbsolute, join } from 'node:path';
import { WebhookConfigurationError } from '../errors/webhook.error.js';

/**
 * Injection token of the HttpService that deliveries are sent with: `undefined` if one is created for the first attempt, or the
 * reason why there can be none.
 */
export const WEBHOOK_HTTP = Symbol('nestjs-webhook-token/http');

/** Holds the provider of {@link WEBHOOK_HTTP}. */
class WebhookHttpModule {}

/**
 * Provides {@link WEBHOOK_HTTP}.
 *
 * axios and @nestjs/axios take longer to load than the rest of the module, so they are loaded for the first attempt.
 *
 * @param httpModule - provides the HttpService; by default it is the module's own
 */
export async function webhookHttpModule(
  httpModule: Type | DynamicModule | undefined,
): Promise<DynamicModule> {
  const module = { module: WebhookHttpModule, exports: [WEBHOOK_HTTP] };
  // Tests override HttpService by its class, so there it is a provider from the start.
  if (httpModule === undefined && process.env['NODE_ENV'] !== 'test') {
    return { ...module, providers: [{ provide: WEBHOOK_HTTP, useFactory: missingPackage }] };
  }
  try {
    const { HttpService } = await import('@nestjs/axios');
    const http = { provide: WEBHOOK_HTTP, useExisting: HttpService };
    if (httpModule !== undefined) return { ...module, imports: [httpModule], providers: [http] };
    const own = { provide: HttpService, useFactory: createHttpService };
    return { ...module, providers: [own, http] };
  } catch (cause) {
    return { ...module, providers: [{ provide: WEBHOOK_HTTP, useValue: missingAxios(cause) }] };
  }
}

/** Provides nothing, to an application that only receives. */
export function noWebhookHttpModule(): DynamicModule {
  return {
    module: WebhookHttpModule,
    providers: [{ provide: WEBHOOK_HTTP, useValue: undefined }],
    exports: [WEBHOOK_HTTP],
  };
}

/** Creates the module's own HttpService. */
export async function createHttpService(): Promise<HttpService> {
  const [axios, { HttpService }] = await Promise.all([import('axios'), import('@nestjs/axios')]);
  // @nestjs/axios 4 names the declarations of axios for CommonJS, version 12 those for ES modules.
  return new HttpService(deliveryAxios(axios) as never);
}

/** @throws {@link WebhookConfigurationError} if axios or @nestjs/axios is not installed */
export function requireHttp(
  http: HttpService | WebhookConfigurationError | undefined,
): HttpService | undefined {
  if (http instanceof WebhookConfigurationError) throw http;
  return http;
}

/** Looks for the packages without loading them. One that is not found, as in a bundle, is loaded to be sure. */
async function missingPackage(): Promise<WebhookConfigurationError | undefined> {
  if (isInstalled('axios') && isInstalled('@nestjs/axios')) return undefined;
  try {
    await createHttpService();
    return undefined;
  } catch (cause) {
    return missingAxios(cause);
  }
}

/** Looks where Node does, from the application's main file and from its working directory. */
function isInstalled(name: string): boolean {
  return [process.argv[1] ?? '', join(process.cwd(), 'package.json')]
    .filter(isAbsolute)
    .flatMap((file) => createRequire(file).resolve.paths(name) ?? [])
    .some((folder) => existsSync(join(folder, name)));
}

function missingAxios(cause: unknown): WebhookConfigurationError {
  return new WebhookConfigurationError(
    [
      {
        path: 'publisher',
        message:
          'sends with axios and @nestjs/axios, which cannot be loaded: run "npm install axios @nestjs/axios", or leave the publisher out',
      },
    ],
    { cause },
  );
}

/** Creates the axios instance below the module's own HttpService. */
function deliveryAxios({
  Axios,
  AxiosHeaders,
}: typeof import('axios')): InstanceType<typeof Axios> {
  class DeliveryAxios extends Axios {
    constructor() {
      super({ headers: {} as never });
      // HttpService calls it without its object.
      this.request = this.request.bind(this);
    }

    /** Without interceptors, a complete request needs nothing of the core of axios, which takes longer than the request. */
    override async request(config: AxiosRequestConfig): Promise<never> {
      const { request, response } = this.interceptors;
      const isIntercepted = request.handlers?.length !== 0 || response.handlers?.length !== 0;
      if (isIntercepted || typeof config.adapter !== 'function') return super.request(config);
      const headers = new AxiosHeaders(config.headers as Record<string, string>);
      return config.adapter({ ...config, headers }) as Promise<never>;
    }
  }
  return new DeliveryAxios();
}

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

/** Settings that only the HTTP adapter of axios supports. */
const AXIOS_ONLY = ['maxRate', 'onUploadProgress', 'onDownloadProgress'];

/** Whether interceptors and defaults have left the settings of a delivery as they are, and added none. */
export function isUnchanged(config: AxiosRequestConfig, settings: DeliverySettings): boolean {
  const { data } = config as { readonly data?: unknown };
  const names = [...Object.keys(settings), ...AXIOS_ONLY];
  return (
    (data === undefined || Buffer.isBuffer(data)) &&
    changedSetting(config, settings, names) === undefined
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
