import {
  All,
  Controller,
  Inject,
  Injectable,
  type OnApplicationBootstrap,
  Req,
  Res,
  type Type,
  UseGuards,
  VERSION_NEUTRAL,
  VersioningType,
} from '@nestjs/common';
import { ApplicationConfig } from '@nestjs/core';
import { WebhookConfigurationError } from '../errors/webhook.error.js';
import { type AdapterRequest, type AdapterResponse, ConsoleHandler } from './console.handler.js';
import {
  CONSOLE_OPTIONS,
  type ResolvedConsole,
  type WebhookConsoleExtras,
} from './console-options.js';

type Guards = NonNullable<WebhookConsoleExtras['guards']>;

/** The controllers of one registration: each has classes of its own, since Nest reads path, guards and decorators from the class. */
export class ConsoleControllers {
  readonly console: Type = controllerOf('console', 'WebhookConsoleController');
  readonly portal: Type = controllerOf('portal', 'WebhookPortalController');
  readonly guards: Guards;

  constructor({ guards = [], decorators = [], portalDecorators = [] }: WebhookConsoleExtras) {
    this.guards = guards;
    if (guards.length > 0) UseGuards(...guards)(this.console);
    for (const decorate of decorators) decorate(this.console);
    for (const decorate of portalDecorators) decorate(this.portal);
  }

  /**
   * Sets the paths, before Nest registers routes: a factory may have created them, and routers spell a wildcard differently. Then
   * hides the routes from OpenAPI documents.
   *
   * @param router - of the HTTP adapter: 'express' or 'fastify'
   * @param versioning - of the application; absent if its routes have no versions
   */
  async mount(
    { path, portal }: ResolvedConsole,
    router: string,
    versioning: VersioningType | undefined,
  ): Promise<void> {
    const paths = ['', router === 'fastify' ? '*' : '*path'];
    const route = { paths, isVersioned: versioning === VersioningType.URI };
    setRoute(this.console, path, route);
    if (portal !== undefined) setRoute(this.portal, portal.path, route);
    const swagger = await import('@nestjs/swagger').catch(() => undefined);
    for (const controller of [this.console, this.portal]) {
      swagger?.ApiExcludeController()(controller);
    }
  }
}

interface SharedRoute {
  readonly paths: string[];
  /** A browser can send a version in the URL only. */
  readonly isVersioned: boolean;
}

/** Makes the only method of a controller a route; until then it is none. */
function setRoute(controller: Type, path: string, { paths, isVersioned }: SharedRoute): void {
  const prototype = controller.prototype as object;
  Controller({ path, ...(!isVersioned && { version: VERSION_NEUTRAL }) })(controller);
  All(paths)(prototype, 'handle', Object.getOwnPropertyDescriptor(prototype, 'handle')!);
}

/** @param name - of its class, which logs and documents of the application show */
function controllerOf(kind: 'console' | 'portal', name: string): Type {
  @Controller()
  class ConsoleController {
    constructor(private readonly handler: ConsoleHandler) {}

    /** The page, its files and the API. */
    async handle(@Req() request: AdapterRequest, @Res() response: AdapterResponse): Promise<void> {
      return this.handler.handle(kind, request, response);
    }
  }
  Object.defineProperty(ConsoleController, 'name', { value: name });
  return ConsoleController;
}

/** Guards of @nestjs/throttler and nestjs-cls, which let everyone through. */
const NO_PROTECTION = /^(?:Throttler|Cls)Guard$/;

/** Values of NODE_ENV; a missing one may be production. */
const DEVELOPMENT: ReadonlySet<string | undefined> = new Set(['development', 'test']);

/** Refuses to start if the console has no guard, except in development, where it then answers this machine only. */
@Injectable()
export class ConsoleGuardCheck implements OnApplicationBootstrap {
  constructor(
    @Inject(CONSOLE_OPTIONS) private readonly options: ResolvedConsole,
    private readonly controllers: ConsoleControllers,
    private readonly handler: ConsoleHandler,
    private readonly config: ApplicationConfig,
  ) {}

  onApplicationBootstrap(): void {
    if (this.options.allowUnguarded) return;
    const classes = [
      ...this.controllers.guards.map(classOf),
      ...this.config.getGlobalGuards().map(classOf),
      ...this.config.getGlobalRequestGuards().map(({ metatype }) => metatype),
    ];
    if (classes.some(protects)) return;
    this.handler.isUnguarded = true;
    if (DEVELOPMENT.has(process.env['NODE_ENV'])) return;
    throw new WebhookConfigurationError([
      {
        path: 'WebhookConsoleModule.guards',
        message:
          'no guard protects the console, and anyone could see deliveries; set "guards", or provide an APP_GUARD. Without a guard it starts only with NODE_ENV=development or test, and answers this machine. If something else protects the path, such as a proxy, set allowUnguarded: true',
      },
    ]);
  }
}

function classOf(guard: unknown): unknown {
  return typeof guard === 'function' ? guard : (guard as object).constructor;
}

/** Whether neither the class nor one that it extends is known to let everyone through. */
function protects(guard: unknown): boolean {
  for (let one = guard; typeof one === 'function'; one = Object.getPrototypeOf(one)) {
    if (NO_PROTECTION.test(one.name)) return false;
  }
  return true;
}
