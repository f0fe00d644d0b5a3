import type { DynamicModule, Type } from '@nestjs/common';
import type { HttpService } from '@nestjs/axios';
import { WebhookConfigurationError } from '../errors/webhook.error.js';

/** Injection token of the HttpService that deliveries are sent with, or of the reason why there is none. */
export const WEBHOOK_HTTP = Symbol('nestjs-webhook-token/http');

/** Holds the provider of {@link WEBHOOK_HTTP}. */
class WebhookHttpModule {}

/**
 * Provides {@link WEBHOOK_HTTP}. axios and @nestjs/axios are loaded here, and only here, since an application that only receives
 * need not have them; whether it publishes is not known before its options are.
 *
 * @param httpModule - provides the HttpService; default the plain HttpModule
 */
export async function webhookHttpModule(
  httpModule: Type | DynamicModule | undefined,
): Promise<DynamicModule> {
  const exported = [WEBHOOK_HTTP];
  try {
    const { HttpModule, HttpService } = await import('@nestjs/axios');
    return {
      module: WebhookHttpModule,
      imports: [httpModule ?? HttpModule],
      providers: [{ provide: WEBHOOK_HTTP, useExisting: HttpService }],
      exports: exported,
    };
  } catch (cause) {
    return {
      module: WebhookHttpModule,
      providers: [{ provide: WEBHOOK_HTTP, useValue: missingAxios(cause) }],
      exports: exported,
    };
  }
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
