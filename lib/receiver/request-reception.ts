import type { IncomingMessage } from 'node:http';
import type { WebhookReception } from './replay/webhook-reception.js';

/** An adapter's request: Node's own (Express), or one with Node's as `raw` (Fastify). */
export type AdapterRequest = IncomingMessage | { readonly raw: IncomingMessage };

/** A property instead of a WeakMap, whose values V8 keeps alive until a full GC (benchmark `receive`). */
const RECEPTION = Symbol('nestjs-webhook-token:reception');

/** Runs the handler of a route and settles its event. The intake, as far as a route needs it. */
interface RouteIntake {
  runHandler(
    reception: WebhookReception,
    name: string,
    handle: () => Promise<unknown>,
  ): Promise<unknown>;
}

/** What the guard leaves on a request that it let in. */
interface AdmittedEvent {
  readonly reception: WebhookReception;
  readonly intake: RouteIntake;
}

type WithEvent = IncomingMessage & { [RECEPTION]?: AdmittedEvent };

/** Node's request behind an adapter's. */
export function nodeRequest(request: AdapterRequest): IncomingMessage {
  return 'raw' in request ? request.raw : request;
}

/** Attaches the event that the guard admitted, for the route's method and its parameter decorators. */
export function attachReception(
  request: AdapterRequest,
  reception: WebhookReception,
  intake: RouteIntake,
): void {
  (nodeRequest(request) as WithEvent)[RECEPTION] = { reception, intake };
}

/** The event that the guard admitted on this request, if it did. */
export function receptionOf(request: AdapterRequest): WebhookReception | undefined {
  return admittedEvent(request)?.reception;
}

/** As {@link receptionOf}, with the intake that runs the handler. */
export function admittedEvent(request: AdapterRequest): AdmittedEvent | undefined {
  return (nodeRequest(request) as WithEvent)[RECEPTION];
}

/**
 * The path of a request. On a route of the application it is the route's pattern, since a parameter of the path may be
 * anything, even a secret; a mounted path has no parameters.
 */
export function pathOfRequest(request: AdapterRequest): string {
  const { route, routeOptions } = request as {
    readonly route?: { readonly path?: unknown };
    readonly routeOptions?: { readonly url?: unknown };
  };
  const pattern = route?.path ?? routeOptions?.url;
  if (typeof pattern === 'string') return pattern;
  const { originalUrl, url = '' } = nodeRequest(request) as { originalUrl?: string; url?: string };
  return (originalUrl ?? url).replace(/[?#].*$/s, '');
}
