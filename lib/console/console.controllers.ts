import { All, Controller, Req, Res, type Type, UseGuards } from '@nestjs/common';
import { type AdapterRequest, type AdapterResponse, ConsoleHandler } from './console.handler.js';
import type { ResolvedConsole, WebhookConsoleExtras } from './console-options.js';

/** As `ApiExcludeController()` of @nestjs/swagger, which may not be installed: its routes are not in the OpenAPI document. */
const SWAGGER_EXCLUDE = 'swagger/apiExcludeController';

/** Nest's metadata of a route's path. */
const PATH = 'path';

/** The controllers of one registration: each has classes of its own, since Nest reads path, guards and decorators from the class. */
export class ConsoleControllers {
  readonly console: Type = consoleController();
  readonly portal: Type = portalController();

  constructor({ guards = [], decorators = [], portalDecorators = [] }: WebhookConsoleExtras) {
    for (const controller of [this.console, this.portal]) {
      Reflect.defineMetadata(SWAGGER_EXCLUDE, [true], controller);
    }
    if (guards.length > 0) UseGuards(...guards)(this.console);
    for (const decorate of decorators) decorate(this.console);
    for (const decorate of portalDecorators) decorate(this.portal);
  }

  /**
   * Sets the paths, before Nest registers routes: a factory may have created them, and routers spell a wildcard differently.
   *
   * @param router - of the HTTP adapter: 'express' or 'fastify'
   */
  mount({ path, portal }: ResolvedConsole, router: string): void {
    const paths = ['', router === 'fastify' ? '*' : '*path'];
    Controller(path)(this.console);
    setRoute(this.console, paths);
    if (portal === undefined) return setRoute(this.portal, undefined);
    Controller(portal.path)(this.portal);
    setRoute(this.portal, paths);
  }
}

/** Sets the paths of a controller's only method; without any, it is no route. */
function setRoute({ prototype }: Type, paths: readonly string[] | undefined): void {
  const { handle } = prototype as { handle: object };
  if (paths === undefined) Reflect.deleteMetadata(PATH, handle);
  else Reflect.defineMetadata(PATH, paths, handle);
}

function consoleController(): Type {
  @Controller()
  class WebhookConsoleController {
    constructor(private readonly handler: ConsoleHandler) {}

    /** The page, its files and the API. */
    @All()
    async handle(@Req() request: AdapterRequest, @Res() response: AdapterResponse): Promise<void> {
      return this.handler.handle('console', request, response);
    }
  }
  return WebhookConsoleController;
}

function portalController(): Type {
  @Controller()
  class WebhookPortalController {
    constructor(private readonly handler: ConsoleHandler) {}

    /** The same for partners. */
    @All()
    async handle(@Req() request: AdapterRequest, @Res() response: AdapterResponse): Promise<void> {
      return this.handler.handle('portal', request, response);
    }
  }
  return WebhookPortalController;
}
