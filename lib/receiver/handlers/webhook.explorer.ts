import { Injectable, Logger } from '@nestjs/common';
import { DiscoveryService, MetadataScanner, ModuleRef, type ContextId } from '@nestjs/core';
import type { ConfigurationFault } from '../../errors/webhook.error.js';
import { eventPatternFault } from '../../token/event-name.js';
import { WebhookHandlerContext } from './webhook-handler.context.js';
import { WebhookHandlerRegistry, type WebhookHandler } from './webhook-handler.registry.js';
import type { WebhookEvent } from '../webhook-event.js';
import { readSubscriptions } from './webhook-subscription.js';

type Wrapper = ReturnType<DiscoveryService['getProviders']>[number];

/**
 * Finds the handlers at start-up: on every provider and controller, of any scope.
 */
@Injectable()
export class WebhookExplorer {
  private readonly logger = new Logger('WebhookModule');
  private readonly known = new WeakMap<object, Set<string>>();

  constructor(
    private readonly discovery: DiscoveryService,
    private readonly scanner: MetadataScanner,
    private readonly context: WebhookHandlerContext,
    private readonly registry: WebhookHandlerRegistry,
    private readonly moduleRef: ModuleRef,
  ) {}

  /**
   * @param receivers - the names a handler may ask for
   * @returns what is wrong with the handlers
   */
  explore(receivers: ReadonlySet<string>): ConfigurationFault[] {
    const faults: ConfigurationFault[] = [];
    for (const wrapper of [...this.discovery.getProviders(), ...this.discovery.getControllers()]) {
      // An alias (`useExisting`) stands for a provider that is found by itself.
      if (wrapper.isAlias) continue;
      const prototype = prototypeOf(wrapper);
      if (prototype === undefined) continue;
      for (const methodName of this.scanner.getAllMethodNames(prototype)) {
        this.register(wrapper, prototype, methodName, receivers, faults);
      }
    }
    return faults;
  }

  private register(
    wrapper: Wrapper,
    prototype: Record<string, unknown>,
    methodName: string,
    receivers: ReadonlySet<string>,
    faults: ConfigurationFault[],
  ): void {
    const method = prototype[methodName];
    if (typeof method !== 'function') return;
    const subscriptions = readSubscriptions(method);
    if (subscriptions.length === 0 || this.isKnown(wrapper, methodName)) return;
    const name = `${wrapper.name}.${methodName}`;
    // One handler a method, however many subscriptions lead to it: an event runs it once.
    const handler: WebhookHandler = { name, run: this.runner(wrapper, methodName) };
    for (const { patterns, receiver } of subscriptions) {
      if (receiver !== undefined && !receivers.has(receiver)) {
        faults.push({
          path: name,
          message: `asks for the receiver "${receiver}", which is not configured: name one of ${[...receivers].join(', ') || 'none'}`,
        });
      }
      for (const pattern of patterns) {
        const message = eventPatternFault(pattern);
        if (message !== undefined) faults.push({ path: name, message });
        else this.registry.add(pattern, receiver, handler);
      }
      this.logger.log(`Mapped {${patterns.join(', ')}} to ${name}`);
    }
  }

  /** A factory may give the same instance under a second token. */
  private isKnown(wrapper: Wrapper, methodName: string): boolean {
    if (isScoped(wrapper)) return false;
    const instance = wrapper.instance as object;
    const known = this.known.get(instance) ?? new Set();
    this.known.set(instance, known);
    if (known.has(methodName)) return true;
    known.add(methodName);
    return false;
  }

  private runner(wrapper: Wrapper, methodName: string): WebhookHandler['run'] {
    if (!isScoped(wrapper)) return this.context.wrap(wrapper.instance as object, methodName);
    return (event, scope) => this.runScoped(wrapper, methodName, event, scope());
  }

  private async runScoped(
    wrapper: Wrapper,
    methodName: string,
    event: WebhookEvent,
    contextId: ContextId,
  ): Promise<unknown> {
    const instance = await this.moduleRef.resolve<object>(wrapper.token, contextId, {
      strict: false,
    });
    const run = this.context.wrap(instance, methodName, { contextId, inquirerId: wrapper.id });
    return run(event);
  }
}

/** Instances of request-scoped and transient providers are placeholders until they are resolved. */
function isScoped(wrapper: Wrapper): boolean {
  return wrapper.isTransient || !wrapper.isDependencyTreeStatic();
}

function prototypeOf(wrapper: Wrapper): Record<string, unknown> | undefined {
  const { instance, metatype } = wrapper;
  if (!isScoped(wrapper)) {
    return typeof instance === 'object' && instance !== null
      ? ((Object.getPrototypeOf(instance) as Record<string, unknown> | null) ?? undefined)
      : undefined;
  }
  return (metatype as { prototype?: Record<string, unknown> } | null)?.prototype;
}
