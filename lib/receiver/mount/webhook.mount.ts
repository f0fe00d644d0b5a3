import { Inject, Injectable, Logger, type HttpServer } from '@nestjs/common';
import { ApplicationConfig, HttpAdapterHost, ModulesContainer } from '@nestjs/core';
import type { ConfigurationProblem } from '../../errors/webhook.error.js';
import { refuse } from '../../request/webhook-answers.js';
import { sendAnswer } from '../node-http.js';
import type { ResolvedReceiver, ResolvedReceivers } from '../receiver-options.resolver.js';
import { WEBHOOK_RECEIVERS } from '../receiver.constants.js';
import { ReceiverReporter } from '../receiver.reporter.js';
import { ReceivePipeline } from '../receive.js';
import { WebhookGuard } from '../webhook.guard.js';
import { ExpressMount } from './express.mount.js';
import { FastifyMount } from './fastify.mount.js';
import { UnguardedBodyInterceptor } from './body-shield.js';
import { type AdapterMount, mountPaths, type NodeHandler } from './mounted-paths.js';

/** Shared by all webhook modules of an application. */
const mounts = new WeakMap<HttpServer, AdapterMount>();

/**
 * Mounts the receivers on the application's HTTP adapter in three steps: as soon as the adapter is known, before the application's
 * body parsers exist; at start-up, when the prefix and the versions are known; and on the server, ahead of the framework.
 */
@Injectable()
export class WebhookMount {
  private readonly logger = new Logger('WebhookModule');

  constructor(
    @Inject(WEBHOOK_RECEIVERS) private readonly receivers: ResolvedReceivers,
    private readonly adapterHost: HttpAdapterHost,
    private readonly pipeline: ReceivePipeline,
    private readonly reporter: ReceiverReporter,
    private readonly config: ApplicationConfig,
    private readonly modules: ModulesContainer,
  ) {
    if (receivers.size === 0) return;
    // In a test the adapter is created after the providers; an application context without HTTP has none.
    if (this.adapter() !== undefined) this.prepare();
    else this.adapterHost.init$.subscribe(() => this.prepare());
  }

  /**
   * Refuses requests whose body was hidden for a guard that their route does not have. It must run before Nest creates its routes; an
   * application without the guard hides no body, and its routes run no interceptor for this.
   */
  protectUnguardedRoutes(): void {
    // Nest has not set them if the options are request-scoped, which fails start-up later.
    const receivers = this.receivers as ResolvedReceivers | undefined;
    if (receivers === undefined || receivers.size === 0 || !this.isGuarded()) return;
    const interceptors = this.config.getGlobalInterceptors();
    if (interceptors.some((one) => one instanceof UnguardedBodyInterceptor)) return;
    this.config.addGlobalInterceptor(new UnguardedBodyInterceptor());
  }

  /** @returns what prevents it */
  mountReceivers(): ConfigurationProblem[] {
    const adapter = this.adapter();
    if (adapter === undefined) return [];
    const mount = mounts.get(adapter);
    if (mount === undefined) {
      const message = `the HTTP adapter "${adapter.getType()}" is not supported; use Express or Fastify, or pass requests to WebhookVerifier.verify()`;
      return [{ path: 'receiver', message }];
    }
    if (this.isGuarded()) mount.shield.addGuarded(this.receivers.values());
    return [...this.receivers.values()].flatMap((receiver) =>
      receiver.path === undefined
        ? []
        : mountPaths(receiver.path, this.config).flatMap((path) =>
            this.mountReceiver(receiver, path, mount),
          ),
    );
  }

  /** Answers mounted paths ahead of the framework, once every module has mounted its own. */
  attach(): void {
    const adapter = this.adapter();
    if (adapter !== undefined) mounts.get(adapter)?.paths.attach(adapter);
  }

  /** Whether a route, or the whole application, may use the guard. A request-scoped one has no instance yet, but a class. */
  private isGuarded(): boolean {
    const hosts = [...this.modules.values()].flatMap(({ injectables, providers }) => [
      ...injectables.values(),
      // Every webhook module provides the guard itself, for routes of other modules.
      ...(providers.has(WEBHOOK_RECEIVERS) ? [] : providers.values()),
    ]);
    return (
      this.config.getGlobalGuards().some((guard) => guard instanceof WebhookGuard) ||
      hosts.some(({ instance, metatype }) => isGuard(metatype) || instance instanceof WebhookGuard)
    );
  }

  private mountReceiver(
    receiver: ResolvedReceiver,
    path: string,
    mount: AdapterMount,
  ): ConfigurationProblem[] {
    const problem = (by: string): ConfigurationProblem[] => [
      {
        path: `receiver "${receiver.name}".path`,
        message: `${path} is taken by ${by}; choose another path`,
      },
    ];
    const other = mount.paths.receiverAt(path);
    if (other !== undefined) return problem(`receiver "${other}"`);
    const routes = mount.mount({
      path,
      receiver: receiver.name,
      methods: ['HEAD', 'POST', ...(receiver.scheme.challengeMethods ?? [])],
      answer: (request, response) => void this.pipeline.answer(request, response, receiver),
      refuse: this.refuseMethod,
    });
    if (routes !== undefined) return problem(`a route of the application for ${routes}`);
    this.logger.log(`Mapped {${path}, HEAD and POST} to receiver "${receiver.name}"`);
    return [];
  }

  private readonly refuseMethod: NodeHandler = (request, response) => {
    const answer = refuse('method_not_allowed');
    sendAnswer(request, response, answer, { close: false });
    this.reporter.report({ answer, request });
  };

  private prepare(): void {
    const adapter = this.adapter();
    if (adapter === undefined || mounts.has(adapter)) return;
    const type = adapter.getType();
    if (type === 'express') mounts.set(adapter, new ExpressMount(adapter));
    if (type === 'fastify') mounts.set(adapter, new FastifyMount(adapter));
  }

  private adapter(): HttpServer | undefined {
    // The type says it is always set; in an application without HTTP it is null.
    return (this.adapterHost.httpAdapter as HttpServer | null | undefined) ?? undefined;
  }
}

function isGuard(type: object | null): boolean {
  return (
    typeof type === 'function' && (type === WebhookGuard || type.prototype instanceof WebhookGuard)
  );
}
