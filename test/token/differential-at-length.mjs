// npm run test:differential: the differential test over more than 100,000 mutated tokens.
import { spawnSync } from 'node:child_process';

const jest = [
  '--experimental-vm-modules',
  'node_modules/jest/bin/jest.js',
  'test/token/differential',
];
const { status } = spawnSync(process.execPath, jest, {
  stdio: 'inherit',
  env: { ...process.env, DIFFERENTIAL_SCALE: '20' },
});
process.exitCode = status ?? 1;
