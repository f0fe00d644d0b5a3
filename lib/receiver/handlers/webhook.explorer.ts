import {
  type CallHandler,
  Catch,
  type ExceptionFilter,
  type ExecutionContext,
  Injectable,
  Logger,
  type NestInterceptor,
  type Type,
} from '@nestjs/common';
import {
  ApplicationConfig,
  type ContextId,
  DiscoveryService,
  ExternalContextCreator,
  MetadataScanner,
  ModuleRef,
  NestContainer,
} from '@nestjs/core';
import { defaultIfEmpty, type Observable } from 'rxjs';
import type { ConfigurationProblem } from '../../errors/webhook.error.js';
import {
  type HostedMethod,
  isScoped,
  type MethodHost,
  methodsOf,
} from '../../options/decorated-methods.js';
import { eventPatternProblem } from '../../token/event-name.js';
import { markGuardRefusal } from '../error-answers.js';
import { WEBHOOK_CONTEXT_TYPE } from '../receiver.constants.js';
import type { ResolvedReceiver } from '../receiver-options.resolver.js';
import type { WebhookEvent } from '../webhook-event.js';
import {
  dataTypes,
  HANDLER_PARAMETERS,
  type HandlerParameter,
  parameterTypes,
  readSubscriptions,
} from './handler-metadata.js';
import {
  type ClassValidatorInstallation,
  findClassValidator,
  isClass,
} from './payload-validator.js';
import { type WebhookHandler, WebhookHandlerRegistry } from './webhook.dispatcher.js';

/** Finds the handlers at start-up, on every provider and controller of any scope. */
@Injectable()
export class WebhookExplorer {
  private readonly logger = new Logger('WebhookModule');
  /** Names of handlers by the prototype of their class. */
  private readonly registered = new Map<object, Set<string>>();

  constructor(
    private readonly discovery: DiscoveryService,
    private readonly scanner: MetadataScanner,
    private readonly registry: WebhookHandlerRegistry,
  ) {}

  /**
   * @param receivers - all receivers of the application: a handler may name one of another module
   * @returns what is wrong with the handlers
   */
  async explore(receivers: readonly ResolvedReceiver[]): Promise<ConfigurationProblem[]> {
    const methods = this.methods();
    // It takes longer to load than the receiver, so an application without such data does not load it.
    const classValidator = methods.some(hasClassData) ? await findClassValidator() : 'missing';
    return methods.flatMap((method) => [
      ...validationProblems(method, receivers, classValidator),
      ...this.register(method, receivers, classValidator),
    ]);
  }

  /** Warns about the handlers of an application without a receiver: they never run. */
  warnUnreceived(): void {
    for (const { method, name } of this.methods()) {
      if (readSubscriptions(method).length === 0) continue;
      this.logger.warn(
        `${name} handles webhooks, but no receiver is configured, so it never runs: set "receiver" in WebhookModule.forRoot, or remove @OnWebhookEvent`,
      );
    }
  }

  private methods(): HostedMethod[] {
    const { discovery, scanner } = this;
    return methodsOf([...discovery.getProviders(), ...discovery.getControllers()], scanner);
  }

  private register(
    hosted: HostedMethod,
    receivers: readonly ResolvedReceiver[],
    classValidator: ClassValidatorInstallation,
  ): ConfigurationProblem[] {
    const { prototype, key, method, name } = hosted;
    const subscriptions = readSubscriptions(method);
    if (subscriptions.length === 0) return [];
    // One handler per method, however many of its subscriptions match: an event runs it once.
    const { call, skipped } = callOf(hosted);
    const handler: WebhookHandler = { name, call };
    const problems: ConfigurationProblem[] = [];
    if (skipped.size > 0) problems.push({ path: name, message: skippedMessage([...skipped]) });
    const registered = this.registered.get(prototype) ?? new Set();
    const again = registered.has(key) ? AGAIN : '';
    this.registered.set(prototype, registered.add(key));
    for (const { patterns, receiver } of subscriptions) {
      if (receiver !== undefined && !receivers.some((one) => one.name === receiver)) {
        const names = receivers.map((one) => `"${one.name}"`).join(', ') || 'none';
        problems.push({
          path: name,
          message: `receiver "${receiver}" is not configured; use one of: ${names}`,
        });
      }
      for (const pattern of patterns) {
        const message = eventPatternProblem(pattern);
        if (message !== undefined) problems.push({ path: name, message });
        else this.registry.add(pattern, receiver, handler);
      }
      const isChecked = receivers.every(({ events }) =>
        patterns.every((pattern) => events?.checks(pattern) === true),
      );
      const validation = isChecked ? '' : unvalidatedNote(hosted, classValidator);
      const served = receivers.filter((one) => receiver === undefined || one.name === receiver);
      const isReached = served.some(({ path, scheme }) => (path ?? scheme.poll) !== undefined);
      const reach = isReached ? '' : UNREACHED;
      const level = validation === UNTYPED || again !== '' ? 'warn' : 'log';
      this.logger[level](`Mapped {${patterns.join(', ')}} to ${name}${validation}${reach}${again}`);
    }
    return problems;
  }
}

/** Whether a parameter for data has a class for a type, which may have constraints. */
function hasClassData({ prototype, key }: HostedMethod): boolean {
  return dataTypes(prototype, key).some(isClass);
}

/** Without class-transformer, the first event for a DTO would be rejected with 500. */
function validationProblems(
  method: HostedMethod,
  receivers: readonly ResolvedReceiver[],
  classValidator: ClassValidatorInstallation,
): ConfigurationProblem[] {
  if (classValidator !== 'incomplete' || !hasClassData(method)) return [];
  if (!receivers.some(({ validator }) => validator.isEnabled)) return [];
  return [
    {
      path: method.name,
      message:
        'its data is validated by class-validator, which needs class-transformer: run "npm install class-transformer", or set validation: false on the receiver',
    },
  ];
}

function skippedMessage(names: readonly string[]): string {
  const instances = names.map((one) => `new ${one}()`).join(', ');
  return `Nest would not run ${names.join(', ')}: it creates guards, interceptors, filters and pipes only for providers that are classes; provide the handler as a class instead of useFactory or useValue, or pass instances: ${instances}`;
}

/** What the start-up line of a handler adds if none of its receivers is mounted. */
const UNREACHED =
  ' (its receiver has no path: it runs only if your code calls WebhookDispatcher.dispatch())';

/** What it adds for a second instance of the handler's class. */
const AGAIN =
  ' (again: its class has several instances, and each handles every event; provide it in one module, and import that module)';

/** What it adds if nothing shows whether a parameter is a class, or the event. */
const UNTYPED =
  ' (data not validated: the compiler recorded no types of parameters. Set "emitDecoratorMetadata"; with a compiler that cannot, use @WebhookData({ schema }) and @WebhookContext())';

/** What the start-up line of a handler adds if its data reaches it as the sender chose. */
function unvalidatedNote(
  { prototype, key, method }: HostedMethod,
  classValidator: ClassValidatorInstallation,
): string {
  const types = dataTypes(prototype, key);
  if (types.length > 0 && method.length > 0 && parameterTypes(prototype, key) === undefined) {
    return UNTYPED;
  }
  // A Buffer is what a handler of other content types gets: there is nothing to validate.
  if (types.some((type) => !isClass(type) && type !== Buffer)) {
    return ' (data not validated: the parameter is not typed with a class)';
  }
  return classValidator === 'missing' && types.some(isClass)
    ? ' (data not validated: class-validator is not installed)'
    : '';
}

/** A call of a handler, the second argument of its execution context. */
interface HandlerCall {
  isAllowed: boolean;
}

/** Takes the arguments of a handler from its event; Nest then applies the pipes. */
const parameters = {
  exchangeKeyForValue(_type: number, { valueFrom }: HandlerParameter, [event]: [WebhookEvent]) {
    return valueFrom(event);
  },
};

/** Runs first of a handler's interceptors, and so after its guards. */
class AllowedInterceptor implements NestInterceptor {
  intercept(context: ExecutionContext, next: CallHandler): Observable<unknown> {
    context.getArgByIndex<HandlerCall>(1).isAllowed = true;
    // Nest takes the last value, and rejects without one.
    return next.handle().pipe(defaultIfEmpty(undefined));
  }
}

/** Runs last of a handler's filters: Nest would log the error, which the receiver reports. */
@Catch()
class RethrowingFilter implements ExceptionFilter {
  catch(error: unknown): never {
    throw error;
  }
}

/**
 * Applies the pipes, guards, interceptors and filters of one handler.
 *
 * The application's global ones are left out, since they are for HTTP requests: a global guard would refuse the event, and a global
 * filter could turn a failure into a success. So the creator gets a container with a configuration of its own, and with the module of
 * the handler only. It remembers what it knows of a handler by the names of its class and method, so each handler has its own.
 */
class WebhookHandlerContext {
  /** Names of the handler's guards, interceptors, filters and pipes that Nest has not created. It skips them without an error. */
  readonly skipped = new Set<string>();
  private readonly creator: ExternalContextCreator;

  constructor({ host }: MethodHost) {
    const config = new ApplicationConfig();
    config.useGlobalInterceptors(new AllowedInterceptor());
    config.useGlobalFilters(new RethrowingFilter());
    const container = new NestContainer(config);
    // Nest looks for the module that provides the handler's class. A controller is no provider, and its guards would not be found.
    const find = (type: Type): MethodHost | undefined => {
      const enhancer = host!.injectables.get(type);
      if (enhancer === undefined) this.skipped.add(type.name);
      return enhancer;
    };
    const module = Object.create(host!, {
      hasProvider: { value: () => true },
      injectables: { value: { get: find } },
    }) as typeof host;
    container.getModules().set(host!.token, module!);
    this.creator = ExternalContextCreator.fromContainer(container);
  }

  /**
   * @param scope - context id and inquirer of a request-scoped instance; absent for a singleton
   */
  wrap(
    instance: object,
    methodName: string,
    scope?: { readonly contextId: ContextId; readonly inquirerId: string },
  ): (event: WebhookEvent) => Promise<unknown> {
    const call = this.creator.create(
      instance,
      (instance as Record<string, (...args: unknown[]) => unknown>)[methodName]!,
      methodName,
      HANDLER_PARAMETERS,
      parameters,
      scope?.contextId,
      scope?.inquirerId,
      { guards: true, interceptors: true, filters: true },
      WEBHOOK_CONTEXT_TYPE,
    );
    return async (event) => {
      const state: HandlerCall = { isAllowed: false };
      try {
        return (await call(event, state)) as unknown;
      } catch (error) {
        // A guard that refuses is logged and answered as one, and not as a failed handler.
        if (!state.isAllowed) markGuardRefusal(error);
        throw error;
      }
    };
  }
}

/**
 * The function that calls a method, on an instance of the event's scope if its provider is scoped.
 *
 * @returns also the names of the method's guards, interceptors, filters and pipes that would not run: Nest creates those of classes
 *   only
 */
function callOf({ host, prototype, key }: HostedMethod): {
  readonly call: WebhookHandler['call'];
  readonly skipped: ReadonlySet<string>;
} {
  const context = new WebhookHandlerContext(host);
  const { skipped } = context;
  if (!isScoped(host)) return { call: context.wrap(host.instance as object, key), skipped };
  // Finds what Nest would skip; the instances do not exist yet.
  if (host.isNotMetatype) context.wrap(prototype, key);
  // Of its own module: another one may provide the same class.
  const { instance: moduleRef } = host.host!.getProviderByKey(ModuleRef);
  const call: WebhookHandler['call'] = async (event, scope) => {
    const contextId = scope(host.isDependencyTreeDurable());
    const instance = await moduleRef.resolve<object>(host.token, contextId, { strict: true });
    return context.wrap(instance, key, { contextId, inquirerId: host.id })(event);
  };
  return { call, skipped };
}
