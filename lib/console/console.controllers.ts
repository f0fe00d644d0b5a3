import {
  All,
  Controller,
  Req,
  Res,
  type Type,
  UseGuards,
  VERSION_NEUTRAL,
  VersioningType,
} from '@nestjs/common';
import { type AdapterRequest, type AdapterResponse, ConsoleHandler } from './console.handler.js';
import type { ResolvedConsole, WebhookConsoleExtras } from './console-options.js';

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
