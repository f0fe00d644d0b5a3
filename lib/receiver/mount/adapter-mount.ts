import type { IncomingMessage, ServerResponse } from 'node:http';
import type { ConfigurationProblem } from '../../errors/webhook.error.js';
import type { RouteRecorder } from './route-recorder.js';

/** Answers a request of Node, independent of the adapter. */
export type NodeHandler = (request: IncomingMessage, response: ServerResponse) => void;

/** Mounts receivers on an adapter; Express and Fastify have an implementation each. */
export interface AdapterMount {
  /**
   * Installs the interception of requests: it answers mounted paths, and keeps body parsers from reading the bodies of webhook
   * routes. Called before the application's parsers exist.
   */
  interceptRequests(recorder: RouteRecorder): void;

  /**
   * Mounts HEAD and POST, bypassing the application's router where possible.
   *
   * @returns the methods for which the application already has a route there; then nothing is mounted
   */
  mount(path: string, handler: NodeHandler, recorder: RouteRecorder): string | undefined;

  /** Answers every other method of a path, unless the application has a route for it. */
  refuseOtherMethods(path: string, handler: NodeHandler): void;

  /** Finds routes that would answer the requests of a webhook route in its place. */
  shadowedRoutes(recorder: RouteRecorder): ConfigurationProblem[];
}

/** Methods that a webhook path answers with 405. */
export const OTHER_METHODS = ['GET', 'PUT', 'PATCH', 'DELETE', 'OPTIONS'] as const;
