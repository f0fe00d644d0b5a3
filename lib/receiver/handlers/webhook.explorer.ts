import { Injectable, Logger } from '@nestjs/common';
import { DiscoveryService, MetadataScanner } from '@nestjs/core';
import type { ConfigurationProblem } from '../../errors/webhook.error.js';
import { type HostedMethod, methodsOf } from '../../options/decorated-methods.js';
import { eventPatternProblem } from '../../token/event-name.js';
import type { ResolvedReceiver } from '../receiver-options.resolver.js';
import { callOf } from './handler-call.js';
import { dataTypes, parameterTypes, readRoute, readSubscriptions } from './handler-metadata.js';
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
    if (subscriptions.length === 0) {
      if (readRoute(method) !== undefined) this.noteRoute(hosted, receivers, classValidator);
      return [];
    }
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

  /** Nest logs the route itself. */
  private noteRoute(
    hosted: HostedMethod,
    receivers: readonly ResolvedReceiver[],
    classValidator: ClassValidatorInstallation,
  ): void {
    if (receivers.every(({ events }) => events !== undefined)) return;
    const validation = unvalidatedNote(hosted, classValidator);
    if (validation === '') return;
    this.logger[validation === UNTYPED ? 'warn' : 'log'](
      `${hosted.name} receives webhooks${validation}`,
    );
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
