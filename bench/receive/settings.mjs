export const PATH = '/hook';
/** Body limit of every variant, in bytes. */
export const MAX_BODY = 2_000_000;

/** The applications that receive; the first two are those of the main tables. */
export const ADAPTERS = {
  express: { isExpress: true },
  fastify: { isExpress: false },
  'express with middleware': { isExpress: true, hasMiddleware: true },
};

/** The variants to compare, by method; some do not support HEAD. */
export const VARIANTS = {
  honest: 'guard by hand, equal work',
  floor: 'guard by hand, remembers nothing',
  unguarded: 'route without a guard',
  beside: 'route without a guard, beside the module',
  mounted: 'nestjs-webhook-token, mounted',
  bare: 'nestjs-webhook-token, mounted, without the inbox',
  traced: 'nestjs-webhook-token, mounted, traced by OpenTelemetry',
  endpoint: 'nestjs-webhook-token, @WebhookRoute',
  jose: 'guard of 30 lines on jose',
  jsonwebtoken: 'guard on jsonwebtoken',
  standardwebhooks: 'guard on standardwebhooks',
};

/** Variants that accept a forged request too. */
export const UNGUARDED = ['unguarded', 'beside'];

/** Applies decorators to a method and its parameters, as TypeScript does. */
export function decorate(target, method, decorators, parameters = {}) {
  const descriptor = Object.getOwnPropertyDescriptor(target.prototype, method);
  for (const [index, decorator] of Object.entries(parameters)) {
    decorator(target.prototype, method, Number(index));
  }
  Reflect.defineMetadata('design:paramtypes', [Object, Object], target.prototype, method);
  for (const decorator of decorators.toReversed()) decorator(target.prototype, method, descriptor);
}
