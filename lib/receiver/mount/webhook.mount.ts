import { Inject, Injectable, Logger, type HttpServer } from '@nestjs/common';
import {
  ApplicationConfig,
  DiscoveryService,
  HttpAdapterHost,
  MetadataScanner,
} from '@nestjs/core';
import type { ConfigurationProblem } from '../../errors/webhook.error.js';
import type { AdapterMount, NodeHandler } from './adapter-mount.js';
import { ExpressMount } from './express.mount.js';
import { FastifyMount } from './fastify.mount.js';
import { markGuardedRoutes } from './guarded-routes.js';
import { settleInMethods } from './settling-methods.js';
import { mountPaths } from './mount-path.js';
import { type RouterSettings, RouteRecorder, type RoutingAdapter } from './route-recorder.js';
import type { ResolvedReceiver, ResolvedReceivers } from '../receiver-options.interface.js';
import { WEBHOOK_RECEIVERS } from '../receiver.constants.js';
import { sendAnswer } from '../answers/send-answer.js';
import { refuse } from '../answers/webhook-answer.js';
import { ReceiverReporter } from '../receiver.reporter.js';
import { WebhookIntake } from '../webhook.intake.js';

/** The state of an adapter, shared by all webhook modules of an application. */
interface Mounted {
  readonly mount: AdapterMount;
  readonly recorder: RouteRecorder;
  readonly settings: RouterSettings;
  /** The receivers by mounted path, in the form in which the router compares paths. */
  readonly receivers: Map<string, { readonly name: string; readonly module: WebhookMount }>;
}

const mounted = new WeakMap<HttpServer, Mounted>();

/**
 * Mounts the receivers on the application's HTTP adapter in two steps: as soon as the adapter is known, before the application's
 * body parsers exist; and at start-up, when prefix, versions and the application's routes are known.
 */
@Injectable()
export class WebhookMount {
  private readonly logger = new Logger('WebhookModule');

  constructor(
    @Inject(WEBHOOK_RECEIVERS) private readonly receivers: ResolvedReceivers,
    private readonly adapterHost: HttpAdapterHost,
    private readonly intake: WebhookIntake,
    private readonly reporter: ReceiverReporter,
    private readonly config: ApplicationConfig,
    discovery: DiscoveryService,
    scanner: MetadataScanner,
  ) {
    // In a test the adapter is created after the providers; an application context without HTTP has none.
    const prepare = (): void => {
      markGuardedRoutes(discovery, scanner);
      settleInMethods(discovery, scanner);
      this.prepare();
    };
    if (this.adapter() !== undefined) prepare();
    else this.adapterHost.init$.subscribe(prepare);
  }

  /**
   * Mounts the receivers.
   *
   * @returns what prevents it
   */
  mountReceivers(): ConfigurationProblem[] {
    this.stopRecording();
    const prepared = this.prepared();
    if (prepared === undefined) return this.unsupported();
    const { mount, recorder } = prepared;
    const faults = mount.shadowedRoutes(recorder);
    for (const receiver of this.receivers.values()) {
      if (receiver.path === undefined) continue;
      for (const path of mountPaths(receiver.path, this.config)) {
        faults.push(...this.mountReceiver(receiver, path, prepared));
      }
    }
    const endpoints = recorder.routes.filter(
      ({ isWebhook, method }) => isWebhook && method === 'post',
    );
    for (const path of new Set(endpoints.map((route) => route.path))) {
      mount.refuseOtherMethods(path, this.refuseMethod);
    }
    return faults;
  }

  /** Unwraps the adapter, after Nest has registered the application's routes. */
  stopRecording(): void {
    this.prepared()?.recorder.restore();
  }

  private mountReceiver(
    receiver: ResolvedReceiver,
    path: string,
    { mount, recorder, receivers, settings }: Mounted,
  ): ConfigurationProblem[] {
    const compared = settings.caseSensitive ? path : path.toLowerCase();
    const there = receivers.get(compared);
    if (there !== undefined) {
      const whose = there.module === this ? '' : ' of another webhook module';
      return [
        {
          path: `receiver "${receiver.name}".path`,
          message: `${path} is taken by receiver "${there.name}"${whose}; choose another path`,
        },
      ];
    }
    receivers.set(compared, { name: receiver.name, module: this });
    const handler: NodeHandler = (request, response) => {
      void this.intake.handle(request, response, receiver);
    };
    const taken = mount.mount(path, handler, recorder);
    if (taken !== undefined) {
      return [
        {
          path: `receiver "${receiver.name}".path`,
          message: `${path} is taken by a route of the application for ${taken}; choose another path`,
        },
      ];
    }
    mount.refuseOtherMethods(path, this.refuseMethod);
    this.logger.log(`Mapped {${path}, HEAD and POST} to receiver "${receiver.name}"`);
    return [];
  }

  private readonly refuseMethod: NodeHandler = (request, response) => {
    const answer = refuse('method_not_allowed');
    sendAnswer(request, response, answer, { close: false });
    this.reporter.answered({ answer, request });
  };

  private prepare(): void {
    const adapter = this.adapter();
    if (adapter === undefined || mounted.has(adapter)) return;
    const settings = routerSettings(adapter);
    const mount = mountFor(adapter, settings, this.logger);
    if (mount === undefined) return;
    const recorder = new RouteRecorder(adapter as unknown as RoutingAdapter, settings);
    mount.interceptRequests(recorder);
    mounted.set(adapter, { mount, recorder, settings, receivers: new Map() });
  }

  private prepared(): Mounted | undefined {
    const adapter = this.adapter();
    return adapter === undefined ? undefined : mounted.get(adapter);
  }

  private adapter(): HttpServer | undefined {
    // The type says it is always set; in an application without HTTP it is null.
    return (this.adapterHost.httpAdapter as HttpServer | null | undefined) ?? undefined;
  }

  private unsupported(): ConfigurationProblem[] {
    const adapter = this.adapter();
    if (adapter === undefined) return [];
    return [
      {
        path: 'receiver',
        message: `the HTTP adapter "${adapter.getType()}" is not supported; use Express or Fastify, or pass requests to WebhookVerifier.verify()`,
      },
    ];
  }
}

function mountFor(
  adapter: HttpServer,
  settings: RouterSettings,
  logger: Logger,
): AdapterMount | undefined {
  switch (adapter.getType()) {
    case 'express':
      return new ExpressMount(adapter, settings);
    case 'fastify':
      return new FastifyMount(adapter, logger);
    default:
      return undefined;
  }
}

/** How Express compares paths is in its settings; Fastify refuses a taken path by itself. */
function routerSettings(adapter: HttpServer): RouterSettings {
  if (adapter.getType() !== 'express') return { caseSensitive: true, strict: true };
  const instance = adapter.getInstance() as { get?: (name: string) => unknown } | undefined;
  const setting = (name: string): boolean => instance?.get?.(name) === true;
  return { caseSensitive: setting('case sensitive routing'), strict: setting('strict routing') };
}
