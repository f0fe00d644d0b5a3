import { execFile } from 'node:child_process';
import { fileURLToPath } from 'node:url';
import { promisify } from 'node:util';
import { expect, it } from '@jest/globals';

const script = fileURLToPath(new URL('./without-axios.process.mjs', import.meta.url));

async function run(role: 'receive' | 'publish'): Promise<string> {
  const { stdout } = await promisify(execFile)(process.execPath, ['--no-warnings', script, role]);
  return stdout.trim();
}

it('receives without axios, and does not try to load it', async () => {
  await expect(run('receive')).resolves.toBe('answers 401');
});

it('reports at start-up that a publisher needs axios', async () => {
  await expect(run('publish')).resolves.toMatch(
    /^asks for axios, WebhookConfigurationError invalid_configuration: .*npm install axios @nestjs\/axios/,
  );
});
