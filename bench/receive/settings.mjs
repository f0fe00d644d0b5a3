export const PATH = '/hook';
/** Bytes of a body that every variant takes. */
export const MAX_BODY = 2_000_000;

/** What is asked of a server, by method: those that know no HEAD have no place among HEAD requests. */
export const VARIANTS = {
  floor: 'guard by hand on node:crypto',
  unguarded: 'route without a guard',
  mounted: 'nestjs-webhook-token, mounted',
  endpoint: 'nestjs-webhook-token, @WebhookRoute',
  jose: 'guard of 30 lines on jose',
  jsonwebtoken: 'guard on jsonwebtoken',
  standardwebhooks: 'guard on standardwebhooks',
};

/** A decorator's list as TypeScript would apply it to a method. */
export function decorate(target, method, decorators, parameters = {}) {
  const descriptor = Object.getOwnPropertyDescriptor(target.prototype, method);
  for (const [index, decorator] of Object.entries(parameters)) {
    decorator(target.prototype, method, Number(index));
  }
  Reflect.defineMetadata('design:paramtypes', [Object, Object], target.prototype, method);
  for (const decorator of decorators.toReversed()) decorator(target.prototype, method, descriptor);
}
