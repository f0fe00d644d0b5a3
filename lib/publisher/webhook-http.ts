import type { DynamicModule, Type } from '@nestjs/common';
import type { HttpService } from '@nestjs/axios';
import { existsSync } from 'node:fs';
import { createRequire } from 'node:module';
import { isAbsolute, join } from 'node:path';
import { WebhookConfigurationError } from '../errors/webhook.error.js';
import { createHttpService } from '../sending/delivery-axios.js';

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
