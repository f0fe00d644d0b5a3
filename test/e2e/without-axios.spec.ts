import { execFile } from 'node:child_process';
import { promisify } from 'node:util';
import { expect, it } from '@jest/globals';

const script = new URL('./without-axios.process.mjs', import.meta.url);

/** Runs the application in a folder without packages. */
async function run(role: 'receive' | 'publish'): Promise<string> {
  const code = `await import(${JSON.stringify(script.href)})`;
  const { stdout } = await promisify(execFile)(
    process.execPath,
    ['--no-warnings', '--input-type=module', '--eval', code, role],
    { cwd: '/', env: { ...process.env, NODE_ENV: 'development' } },
  );
  return stdout.trim();
}

it('receives without axios, and does not try to load it', async () => {
  await expect(run('receive')).resolves.toBe('answers 401');
});

it('reports at start-up that a publisher needs axios', async () => {
  await expect(run('publish')).resolves.toMatch(
    /^(asks for axios, )+WebhookConfigurationError invalid_configuration: .*npm install axios @nestjs\/axios/,
  );
});
