import type { IncomingMessage, ServerResponse } from 'node:http';
import type { ConfigurationFault } from '../../errors/webhook.error.js';
import type { RouteRecorder } from './route-recorder.js';

/** Takes a request and answers it, whatever the adapter. */
export type NodeHandler = (request: IncomingMessage, response: ServerResponse) => void;

/** What an adapter must be able to do for us; one implementation each. */
export interface AdapterMount {
  /** Leaves the bodies of webhook routes unread; called before the application's parsers exist. */
  shieldRoutes(recorder: RouteRecorder): void;

  /**
   * Mounts HEAD and POST, past the application's router where that can be.
   *
   * @returns the methods for which the application already has a route there; then nothing is mounted
   */
  mount(path: string, handler: NodeHandler, recorder: RouteRecorder): string | undefined;

  /** Answers every other method of a path, unless the application has a route of its own for it. */
  refuseOtherMethods(path: string, handler: NodeHandler): void;

  /** Says which routes would take a webhook route's requests before it sees them. */
  shadowedRoutes(recorder: RouteRecorder): ConfigurationFault[];
}

/** Methods that are answered 405 on a webhook's path. */
export const OTHER_METHODS = ['GET', 'PUT', 'PATCH', 'DELETE', 'OPTIONS'] as const;
