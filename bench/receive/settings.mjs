export const PATH = '/hook';
/** Body limit of every variant, in bytes. */
export const MAX_BODY = 2_000_000;

/** The variants to compare, by method; some do not support HEAD. */
export const VARIANTS = {
  floor: 'guard by hand on node:crypto',
  unguarded: 'route without a guard',
  mounted: 'nestjs-webhook-token, mounted',
  endpoint: 'nestjs-webhook-token, @WebhookRoute',
  jose: 'guard of 30 lines on jose',
  jsonwebtoken: 'guard on jsonwebtoken',
  standardwebhooks: 'guard on standardwebhooks',
};

/** Applies decorators to a method and its parameters, as TypeScript does. */
export function decorate(target, method, decorators, parameters = {}) {
  const descriptor = Object.getOwnPropertyDescriptor(target.prototype, method);
  for (const [index, decorator] of Object.entries(parameters)) {
    decorator(target.prototype, method, Number(index));
  }
  Reflect.defineMetadata('design:paramtypes', [Object, Object], target.prototype, method);
  for (const decorator of decorators.toReversed()) decorator(target.prototype, method, descriptor);
}
