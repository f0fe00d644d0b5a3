import { Inject, Injectable, type HttpServer } from '@nestjs/common';
import {
  ApplicationConfig,
  DiscoveryService,
  HttpAdapterHost,
  MetadataScanner,
} from '@nestjs/core';
import type { ConfigurationFault } from '../../errors/webhook-configuration.error.js';
import type { AdapterMount, NodeHandler } from './adapter-mount.js';
import { ExpressMount } from './express.mount.js';
import { FastifyMount } from './fastify.mount.js';
import { markGuardedRoutes } from './guarded-routes.js';
import { mountPaths } from './mount-path.js';
import type { ResolvedReceivers } from '../receiver-options.interface.js';
import { WEBHOOK_RECEIVERS } from '../receiver.constants.js';
import { RouteRecorder, type RoutingAdapter } from './route-recorder.js';
import { sendAnswer } from '../answers/send-answer.js';
import { refuse } from '../answers/webhook-answer.js';
import { WebhookIntake } from '../webhook.intake.js';

/** What is done to an adapter, once, however many webhook modules an application has. */
interface Mounted {
  readonly mount: AdapterMount;
  readonly recorder: RouteRecorder;
}

const mounted = new WeakMap<HttpServer, Mounted>();

/**
 * Brings the receivers onto the application's HTTP adapter. Twice: as soon as the adapter is known, which
 * is before the application's body parsers exist; and at start-up, when prefix, versions and the
 * application's own routes are known.
 */
@Injectable()
export class WebhookMount {
  constructor(
    @Inject(WEBHOOK_RECEIVERS) private readonly receivers: ResolvedReceivers,
    private readonly adapterHost: HttpAdapterHost,
    private readonly intake: WebhookIntake,
    private readonly config: ApplicationConfig,
    discovery: DiscoveryService,
    scanner: MetadataScanner,
  ) {
    // In a test the adapter comes after the providers; in a context without HTTP, never.
    const prepare = (): void => {
      markGuardedRoutes(discovery, scanner);
      this.prepare();
    };
    if (this.adapter() !== undefined) prepare();
    else this.adapterHost.init$.subscribe(prepare);
  }

  /** Mounts the receivers, and says what stands in the way. */
  mountReceivers(): ConfigurationFault[] {
    const { mount, recorder } = this.prepared() ?? {};
    if (mount === undefined || recorder === undefined) return this.unsupported();
    const faults = mount.shadowedRoutes(recorder);
    for (const receiver of this.receivers.values()) {
      if (receiver.path === undefined) continue;
      for (const path of mountPaths(receiver.path, this.config)) {
        faults.push(
          ...mount.mount(path, (request, response) => {
            void this.intake.handle(request, response, receiver);
          }),
        );
        mount.refuseOtherMethods(path, this.refuseMethod);
      }
    }
    recorder.restore();
    const endpoints = recorder.routes.filter(
      ({ isWebhook, method }) => isWebhook && method === 'post',
    );
    for (const path of new Set(endpoints.map((route) => route.path))) {
      mount.refuseOtherMethods(path, this.refuseMethod);
    }
    return faults;
  }

  private readonly refuseMethod: NodeHandler = (request, response) => {
    const answer = refuse('method_not_allowed');
    sendAnswer(request, response, answer, { close: false });
    this.intake.report(answer);
  };

  private prepare(): void {
    const adapter = this.adapter();
    if (adapter === undefined || mounted.has(adapter)) return;
    const mount = mountFor(adapter);
    if (mount === undefined) return;
    const recorder = new RouteRecorder(
      adapter as unknown as RoutingAdapter,
      routerSettings(adapter),
    );
    mount.shieldRoutes(recorder);
    mounted.set(adapter, { mount, recorder });
  }

  private prepared(): Mounted | undefined {
    const adapter = this.adapter();
    return adapter === undefined ? undefined : mounted.get(adapter);
  }

  private adapter(): HttpServer | undefined {
    // Typed as always there; `null` in an application without HTTP.
    return (this.adapterHost.httpAdapter as HttpServer | null | undefined) ?? undefined;
  }

  private unsupported(): ConfigurationFault[] {
    const adapter = this.adapter();
    if (adapter === undefined) return [];
    return [
      {
        path: 'receiver',
        message: `the HTTP adapter "${adapter.getType()}" is not supported: use Express or Fastify, or hand requests to WebhookVerifier.verify()`,
      },
    ];
  }
}

function mountFor(adapter: HttpServer): AdapterMount | undefined {
  switch (adapter.getType()) {
    case 'express':
      return new ExpressMount(adapter);
    case 'fastify':
      return new FastifyMount(adapter);
    default:
      return undefined;
  }
}

/** Express keeps how it compares paths in its settings; Fastify's router is asked by nobody here. */
function routerSettings(adapter: HttpServer): { caseSensitive: boolean; strict: boolean } {
  const instance = adapter.getInstance() as { get?: (name: string) => unknown } | undefined;
  const setting = (name: string): boolean =>
    adapter.getType() === 'express' && instance?.get?.(name) === true;
  return { caseSensitive: setting('case sensitive routing'), strict: setting('strict routing') };
}
