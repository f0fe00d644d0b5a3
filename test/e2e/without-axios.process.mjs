/**
 * An application without axios: `receive` starts a receiver, `publish` a publisher. Prints whether it asked for axios, and
 * the result.
 */
import { register } from 'node:module';

const refused = `import { writeSync } from 'node:fs';
export async function resolve(specifier, context, next) {
  if (/^(@nestjs\\/)?axios(\\/|$)/.test(specifier)) {
    writeSync(1, 'asks for axios, ');
    throw Object.assign(new Error('Cannot find package ' + specifier), { code: 'ERR_MODULE_NOT_FOUND' });
  }
  return next(specifier, context);
}`;
register(`data:text/javascript,${encodeURIComponent(refused)}`);

const { NestFactory } = await import('@nestjs/core');
const { WebhookModule } = await import('../../dist/index.js');

const secret = 'a secret of the test that is long enough';
const issuer = 'https://shop.example';
const options = {
  receive: { receiver: { path: 'webhooks', issuers: [{ issuer, secret }] } },
  publish: { publisher: { issuer, secret, endpoints: [] } },
}[process.argv.at(-1)];

class App {}
const imports = [WebhookModule.forRoot(options)];
try {
  const app = await NestFactory.create(
    { module: App, imports },
    { logger: false, abortOnError: false },
  );
  await app.listen(0, '127.0.0.1');
  const response = await fetch(`${await app.getUrl()}/webhooks`, { method: 'POST' });
  console.log(`answers ${response.status}`);
  await app.close();
} catch (error) {
  console.log(`${error.name} ${error.code}: ${error.problems?.map(({ message }) => message)}`);
}
