import { AbstractHttpAdapter } from '@nestjs/core';
import type { HttpServer } from '@nestjs/common';
import type { EventEmitter } from 'node:events';
import type { IncomingMessage, ServerResponse } from 'node:http';
import type { NodeHandler } from './adapter-mount.js';
import { endConnectionAfter, hasAmbiguousLength, isAfterConnectionEnd } from './last-request.js';

type AnyFunction = (...args: never[]) => unknown;

/** The hooks that see a request whose onRequest hook takes it over, as that of a mounted path does. */
const SEEING_HOOKS = ['onRequest', 'onResponse', 'onTimeout', 'onRequestAbort'] as const;

/** A route's options after the onRoute hooks of all plugins. */
type FinalRoute = { readonly [Hook in (typeof SEEING_HOOKS)[number]]?: unknown } & {
  readonly constraints?: object | undefined;
};

/** The part of Fastify's instance that is used here. */
interface FastifyInstance {
  readonly server: EventEmitter;
  readonly routing: NodeHandler;
  readonly log: Readonly<Record<string, unknown>>;
  readonly genReqId: AnyFunction;
  readonly childLoggerFactory: AnyFunction;
  printRoutes(): string;
  addConstraintStrategy: AnyFunction;
  addHook(name: 'onReady', hook: (done: () => void) => void): void;
  addHook(name: 'onRoute', hook: (options: FinalRoute) => void): void;
}

/** Fastify's own state, under symbols that it does not export. Without one of them, nothing bypasses Fastify. */
interface FastifyState {
  readonly hooks: Readonly<Record<string, readonly AnyFunction[] | undefined>>;
  readonly options: Readonly<Record<string, unknown>>;
  readonly state: { readonly closing: boolean };
  /** Middleware that Nest and the application registered with `use()`. */
  readonly middleware: readonly unknown[];
}

interface MountedPath {
  readonly handler: NodeHandler;
  /** The onRequest hook of the path's route. */
  readonly hook: AnyFunction;
  readonly route: FinalRoute;
}

/**
 * Answers requests for mounted paths before Fastify creates its own objects for them (benchmark `receive`), unless something of the
 * application would see the request: a hook, middleware, a log, a request id, a rewritten URL, or a route with constraints.
 *
 * What cannot be determined counts as such; the request then takes its way through Fastify's router to the same handler.
 */
export class FastifyBypass {
  private readonly paths = new Map<string, MountedPath>();
  /** Why requests go through Fastify; `undefined` after start-up if they do not. */
  private obstacle: string | undefined = 'the application has not started';
  private hasConstraints = false;
  private fastify: FastifyState | undefined;
  /** Properties of Nest's adapter that hold a hook of the application. They may be set at any time. */
  private hookProperties: readonly string[] = [];

  /**
   * @param adapter - Nest's FastifyAdapter
   * @param own - hooks of this package, which the bypass replaces
   * @param report - called once at start-up with the reason why requests go through Fastify
   */
  constructor(
    private readonly adapter: HttpServer,
    private readonly instance: FastifyInstance,
    private readonly own: ReadonlySet<AnyFunction>,
    private readonly report: (obstacle: string) => void,
  ) {}

  /** Takes the place of Fastify's listener. Called before the application's routes are registered. */
  install(): void {
    const { instance } = this;
    const { server, routing } = instance;
    const listeners = server.listeners('request');
    // Otherwise a serverFactory, or another listener, sees the requests.
    if (listeners.length !== 1 || listeners[0] !== routing || !hasNoRoutes(instance)) return;
    server.off('request', routing);
    server.on('request', (request: IncomingMessage, response: ServerResponse) => {
      if (!this.tryHandle(request, response)) routing(request, response);
    });
    instance.addHook('onRoute', ({ constraints }) => {
      if (constraints !== undefined && Object.keys(constraints).length > 0) {
        this.hasConstraints = true;
      }
    });
    const addStrategy = instance.addConstraintStrategy;
    instance.addConstraintStrategy = (...args) => {
      this.hasConstraints = true;
      return addStrategy.apply(instance, args);
    };
    // The hooks of every route are final then.
    instance.addHook('onReady', (done) => {
      this.obstacle = this.findObstacle();
      if (this.obstacle !== undefined && this.paths.size > 0) this.report(this.obstacle);
      done();
    });
  }

  /** Adds a mounted path. */
  add(path: string, mounted: MountedPath): void {
    this.paths.set(path, mounted);
  }

  /** @returns whether the request needs no further handling */
  private tryHandle(request: IncomingMessage, response: ServerResponse): boolean {
    if (this.obstacle !== undefined) return false;
    const { method, url = '' } = request;
    if (method !== 'POST' && method !== 'HEAD') return false;
    const query = url.indexOf('?');
    const mounted = this.paths.get(query === -1 ? url : url.slice(0, query));
    if (mounted === undefined || this.isSeenNow()) return false;
    if (isAfterConnectionEnd(request)) return true;
    if (hasAmbiguousLength(request)) endConnectionAfter(request, response);
    mounted.handler(request, response);
    return true;
  }

  /** Whether something that can be added while the application runs sees the request, or Fastify is closing. */
  private isSeenNow(): boolean {
    const { state, middleware } = this.fastify!;
    if (state.closing || middleware.length > 0) return true;
    const adapter = this.adapter as unknown as Readonly<Record<string, unknown>>;
    if (adapter['isShuttingDown'] === true) return true;
    return this.hookProperties.some((name) => adapter[name] !== undefined);
  }

  private findObstacle(): string | undefined {
    this.fastify = stateOf(this.instance);
    if (this.fastify === undefined) return 'this version of Fastify is not known';
    const { hooks, options } = this.fastify;
    const obstacle = this.optionObstacle(options);
    if (obstacle !== undefined) return obstacle;
    const hookSources: string[] = [];
    const adapterSource = sourceOfAdapter(this.adapter);
    for (const name of SEEING_HOOKS) {
      for (const hook of hooks[name] ?? []) {
        if (this.own.has(hook) || isMiddie(hook)) continue;
        const source = String(hook);
        if (!adapterSource.includes(source)) return `the application has an ${name} hook`;
        hookSources.push(source);
      }
    }
    this.hookProperties = hookPropertiesIn(hookSources, this.adapter);
    if (this.isSeenNow())
      return 'the application has middleware, or an option of Nest that acts on every request';
    for (const { route, hook } of this.paths.values()) {
      const seeing = SEEING_HOOKS.filter((name) => route[name] !== undefined);
      if (seeing.some((name) => route[name] !== hook)) return 'a plugin adds hooks to every route';
    }
    return undefined;
  }

  private optionObstacle(options: FastifyState['options']): string | undefined {
    const { log, genReqId, childLoggerFactory } = this.instance;
    const { routerOptions } = options as { readonly routerOptions?: { constraints?: object } };
    const { version, ...others } = (routerOptions?.constraints ?? options['constraints'] ?? {}) as {
      readonly version?: unknown;
    };
    const { versionConstraint } = this.adapter as unknown as {
      readonly versionConstraint?: object;
    };
    if (versionConstraint === undefined || version !== versionConstraint) {
      return 'the application created the Fastify instance';
    }
    if (this.hasConstraints || Object.keys(others).length > 0) return 'routes have constraints';
    if (options['rewriteUrl'] !== undefined) return 'the option rewriteUrl is set';
    const isLogged =
      !isSilent(log) ||
      options['logController'] !== undefined ||
      typeof options['disableRequestLogging'] === 'function' ||
      childLoggerFactory.name !== 'defaultChildLoggerFactory';
    if (isLogged) return 'Fastify logs requests';
    if (genReqId.name !== 'defaultGenReqId') return 'request ids are not those of Fastify';
    return undefined;
  }
}

function hasNoRoutes(instance: FastifyInstance): boolean {
  return instance.printRoutes().trim() === '(empty tree)';
}

function stateOf(instance: object): FastifyState | undefined {
  const hooks = bySymbol(instance, 'fastify.hooks') as FastifyState['hooks'] | undefined;
  const options = bySymbol(instance, 'fastify.options') as FastifyState['options'] | undefined;
  const state = bySymbol(instance, 'fastify.state') as FastifyState['state'] | undefined;
  // Absent with the adapter's option skipMiddie.
  const middleware = bySymbol(instance, 'fastify-middie-middlewares') ?? [];
  const isKnown =
    SEEING_HOOKS.every((name) => Array.isArray(hooks?.[name])) &&
    typeof options === 'object' &&
    typeof state?.closing === 'boolean' &&
    Array.isArray(middleware);
  return isKnown ? { hooks: hooks!, options, state, middleware } : undefined;
}

function bySymbol(instance: object, description: string): unknown {
  const symbol = Object.getOwnPropertySymbols(instance).find(
    (candidate) => candidate.description === description,
  );
  return symbol === undefined ? undefined : (instance as Record<symbol, unknown>)[symbol];
}

/** The source of Nest's own adapter class: a hook that is part of it is Nest's, and not the application's. */
function sourceOfAdapter(adapter: object): string {
  let type = adapter.constructor as AnyFunction;
  while (typeof type === 'function') {
    const parent = Object.getPrototypeOf(type) as AnyFunction;
    if (parent === (AbstractHttpAdapter as unknown)) return String(type);
    type = parent;
  }
  return '';
}

/** The hook by which middie runs middleware; without middleware it does nothing. */
function isMiddie(hook: AnyFunction): boolean {
  return hook.name === 'runMiddie' && String(hook).includes('kMiddie');
}

/** The adapter's properties that Nest's hooks call if they are set, such as `onRequestHook`. */
function hookPropertiesIn(sources: readonly string[], adapter: object): readonly string[] {
  const prototype = Object.getPrototypeOf(adapter) as object;
  const names = sources.flatMap((source) =>
    [...source.matchAll(/this\.(\w*hook)\b/gi)].map(([, name]) => name!),
  );
  return [...new Set(names)].filter((name) => !(name in prototype));
}

/** Whether a log is the one that Fastify has without a logger: it has no level, and its methods are one empty function. */
function isSilent(log: FastifyInstance['log']): boolean {
  const levels = ['fatal', 'error', 'warn', 'info', 'debug', 'trace'];
  return (
    levels.every((level) => log[level] === log['info']) && /\{\s*\}$/.test(String(log['info']))
  );
}
