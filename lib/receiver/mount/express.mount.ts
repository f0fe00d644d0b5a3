import type { IncomingMessage, ServerResponse } from 'node:http';
import type { HttpServer } from '@nestjs/common';
import { BodyShield } from './body-shield.js';
import {
  MountedPaths,
  OTHER_METHODS,
  type AdapterMount,
  type MountedPath,
} from './mounted-paths.js';

/**
 * Mounts receivers on Express by one middleware, which is registered while the module is created, ahead of `app.use()`, CORS, body
 * parsers and routes. It answers the requests that {@link MountedPaths.attach} cannot see: those of an outer application, which ran
 * its middleware before, and those without a socket.
 */
export class ExpressMount implements AdapterMount {
  readonly paths: MountedPaths;
  readonly shield = new BodyShield();

  constructor(private readonly adapter: HttpServer) {
    const instance = adapter.getInstance() as { get(name: string): unknown };
    this.paths = new MountedPaths({
      caseSensitive: instance.get('case sensitive routing') === true,
      strict: instance.get('strict routing') === true,
    });
    adapter.use((request: IncomingMessage, response: ServerResponse, next: () => void) => {
      if (!this.paths.take(request, response)) this.shield.hide(request, () => next());
    });
  }

  /** Always succeeds: the middleware answers ahead of a route that the application may have there. */
  mount(mounted: MountedPath): undefined {
    this.paths.add(mounted);
    // Registered last, so a route of the application for such a method comes first.
    for (const method of OTHER_METHODS) {
      this.adapter[method.toLowerCase() as 'get'](mounted.path, mounted.refuse as never);
    }
  }
}
