import { execFile } from 'node:child_process';
import { fileURLToPath } from 'node:url';
import { promisify } from 'node:util';
import { afterAll, beforeAll, describe, expect, it } from '@jest/globals';
import { ExpressAdapter } from '@nestjs/platform-express';
import { SECRET, startApp } from '../fixtures/receiver-app.js';
import { describeWith, urlOf } from '../fixtures/services.js';
import { TestDatabase } from './database.js';

const SCENARIOS = fileURLToPath(new URL('current-transaction.process.mjs', import.meta.url));

/** An error by its code and the remedy in its message. */
const problem = (code: string, message: RegExp): object => ({
  error: { code, message: expect.stringMatching(message) },
});

(await describeWith('PostgreSQL'))('the current transaction of @nestjs-cls/transactional', () => {
  const database = new TestDatabase();
  const results = new Map<string, object>();

  beforeAll(async () => {
    const args = [SCENARIOS, urlOf('PostgreSQL'), database.newSchema()];
    const { stdout } = await promisify(execFile)(process.execPath, args);
    for (const line of stdout.trim().split('\n')) {
      const { name, ...result } = JSON.parse(line) as { name: string };
      results.set(name, result);
    }
  });
  afterAll(async () => database.close());

  // Unless noted: whether an event stays recorded after the transaction of its publish was rolled back.
  const expected: readonly (readonly [name: string, result: object])[] = [
    ['committed', { value: { during: false, after: true } }],
    ['rolled back', { value: false }],
    ['decorated', { value: [true, false] }],
    ['inner with Required, of a transaction that is rolled back', { value: false }],
    ['inner with Nested, of a transaction that is rolled back', { value: false }],
    ['inner with RequiresNew, of a transaction that is rolled back', { value: true }],
    ['inner with NotSupported, of a transaction that is rolled back', { value: true }],
    ['nested, rolled back on its own', { value: { outer: true, inner: false } }],
    ['no open transaction', { value: true }],
    ['tx: false', { value: true }],
    ['tx of another transaction', { value: true }],
    ['two connections, the one without a name', { value: false }],
    ['two connections, the other', { value: true }],
    ['one connection with a name', { value: false }],
    ['the selected connection', { value: false }],
    ['another than the selected connection', { value: true }],
    ['transactionHost: false', { value: true }],
    [
      'named connections, none selected',
      problem('unsupported_option', /publisher\.transactionHost/),
    ],
    ['named connections, none selected, no open transaction', { value: true }],
    ['an unknown connection', problem('invalid_configuration', /'ordres': register one/)],
    [
      'a database without a queue',
      problem('unsupported_option', /cannot be joined: .*publisher\.transactionHost/),
    ],
    [
      'no connection, but a class of the application with the name TransactionHost',
      { value: true },
    ],
    [
      'a queue in memory',
      { value: { before: 0, recorded: true, warnings: [expect.stringMatching(/tx: false/)] } },
    ],
    // Whether it finds the transaction of the call that started the delivery.
    ['a reaction to a delivery', { value: false }],
  ];

  it.each(expected)('%s', (name, result) => {
    expect(results.get(name)).toEqual(result);
  });

  it('went through nothing else', () => {
    expect([...results.keys()]).toEqual(expected.map(([name]) => name));
  });
});

describe('the option transactionHost', () => {
  it.each([[''], [true], [7]])('is not %j', async (transactionHost) => {
    const publisher = {
      issuer: 'https://billing.example',
      secret: SECRET,
      transactionHost: transactionHost as never,
    };

    await expect(startApp(new ExpressAdapter(), { options: { publisher } })).rejects.toMatchObject({
      message: expect.stringMatching(/publisher\.transactionHost.*connectionName/s),
    });
  });
});
