import type { DiscoveryService, MetadataScanner } from '@nestjs/core';
import { Problems } from './problems.js';

/**
 * Refuses a method that would never run: a static one, or one that a symbol names, is not found, and no one iterates what a
 * generator returns.
 *
 * @throws {@link WebhookConfigurationError}
 */
export function requireRunnable(
  decorator: string,
  target: object,
  key: string | symbol,
  method: unknown,
): void {
  const isStatic = typeof target === 'function';
  const { name } = isStatic ? target : target.constructor;
  const isGenerator = /Generator/.test(Object.prototype.toString.call(method));
  const problems = new Problems(`${name}.${String(key)}`);
  const what = `the method of ${decorator}`;
  problems.require(!isStatic, '', `${what} is static, so it would never run; remove "static"`);
  problems.require(
    !isGenerator,
    '',
    `${what} is a generator, so its body would never run; remove the "*"`,
  );
  problems.require(
    typeof key === 'string',
    '',
    `${what} is named by a symbol, so it would never run; name it by a string`,
  );
  problems.throwIfAny();
}

/** A provider or controller of the application. */
export type MethodHost = ReturnType<DiscoveryService['getProviders']>[number];

/** A method of a provider or controller, with the metadata of its decorators. */
export interface HostedMethod {
  readonly host: MethodHost;
  readonly prototype: object;
  readonly key: string;
  readonly method: object & { readonly length: number };
  /** `Class.method`, for messages. */
  readonly name: string;
}

/** The methods of providers and controllers of any scope; those of an instance once, also if it has a second token. */
export function methodsOf(hosts: readonly MethodHost[], scanner: MetadataScanner): HostedMethod[] {
  const known = new Set<unknown>();
  // Classes first: a factory elsewhere may provide the same instance, without the guards that Nest created for its class.
  return hosts
    .toSorted((a, b) => Number(a.isNotMetatype) - Number(b.isNotMetatype))
    .flatMap((host) => {
      const prototype = prototypeOf(host);
      // An alias (`useExisting`) refers to a provider that is listed by itself.
      if (prototype === undefined || host.isAlias || known.has(host.instance)) return [];
      if (!isScoped(host)) known.add(host.instance);
      return scanner.getAllMethodNames(prototype).flatMap((key) => {
        const method = prototype[key];
        const name = `${String(host.name)}.${key}`;
        return typeof method === 'function' ? [{ host, prototype, key, method, name }] : [];
      });
    });
}

/** Instances of request-scoped and transient providers are placeholders until they are resolved. */
export function isScoped(host: MethodHost): boolean {
  return host.isTransient || !host.isDependencyTreeStatic();
}

/**
 * Of the instance, if there is one. A scoped factory has none yet: its class is the token, if that is one, and otherwise unknown.
 */
function prototypeOf(host: MethodHost): Record<string, unknown> | undefined {
  const { instance, isNotMetatype, metatype, token } = host;
  if (isScoped(host)) {
    const type = isNotMetatype ? token : metatype;
    return (type as { prototype?: Record<string, unknown> } | null)?.prototype;
  }
  return typeof instance === 'object' && instance !== null
    ? ((Object.getPrototypeOf(instance) as Record<string, unknown> | null) ?? undefined)
    : undefined;
}
