import type { DynamicModule, Type } from '@nestjs/common';
import type { HttpService } from '@nestjs/axios';
import { WebhookConfigurationError } from '../errors/webhook.error.js';
import { leanAxios } from './lean-axios.js';

/** Injection token of the HttpService that deliveries are sent with, or of the reason why there is none. */
export const WEBHOOK_HTTP = Symbol('nestjs-webhook-token/http');

/** Holds the provider of {@link WEBHOOK_HTTP}. */
class WebhookHttpModule {}

/**
 * Provides {@link WEBHOOK_HTTP}. axios and @nestjs/axios are loaded here, and only here: an application that only receives need
 * not have them, and does not wait for them.
 *
 * @param httpModule - provides the HttpService; by default it is the module's own, over {@link leanAxios}
 */
export async function webhookHttpModule(
  httpModule: Type | DynamicModule | undefined,
): Promise<DynamicModule> {
  const module = { module: WebhookHttpModule, exports: [WEBHOOK_HTTP] };
  try {
    const { HttpService } = await import('@nestjs/axios');
    const http = { provide: WEBHOOK_HTTP, useExisting: HttpService };
    if (httpModule !== undefined) return { ...module, imports: [httpModule], providers: [http] };
    // Under its own token, so that a test can override it.
    const own = {
      provide: HttpService,
      useFactory: () => new HttpService(leanAxios(new HttpService().axiosRef)),
    };
    return { ...module, providers: [own, http] };
  } catch (cause) {
    return { ...module, providers: [{ provide: WEBHOOK_HTTP, useValue: missingAxios(cause) }] };
  }
}

/** Provides nothing, to an application that only receives. */
export function noWebhookHttpModule(): DynamicModule {
  return {
    module: WebhookHttpModule,
    providers: [{ provide: WEBHOOK_HTTP, useValue: null }],
    exports: [WEBHOOK_HTTP],
  };
}

/** @throws {@link WebhookConfigurationError} if axios could not be loaded */
export function requireHttp(http: HttpService | WebhookConfigurationError): HttpService {
  if (http instanceof WebhookConfigurationError) throw http;
  return http;
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
