import { describe, expect, it } from '@jest/globals';
import { databaseFailure, describeServer, isOutage } from '../../lib/postgres/database-failure.js';

/** As libraries put it around the error of their driver. */
function quoting(code: string): Error {
  const refusal = Object.assign(new Error('relation "x.replay" does not exist'), {
    code,
    where: 'a-value',
  });
  return Object.assign(new Error("Failed query: INSERT … VALUES ('a-value')"), { cause: refusal });
}

describe('the error of a failed statement', () => {
  it.each(['42P01', '42703', '55P03'])('quotes no value, not even in its cause (%s)', (code) => {
    const failure = databaseFailure('The replay store', quoting(code));

    expect(failure.cause).toMatchObject({ code });
    expect(`${failure.message} ${JSON.stringify(failure)}`).not.toContain('a-value');
    expect(String((failure.cause as Error).stack)).not.toContain('a-value');
    expect(failure.cause).not.toHaveProperty('where');
  });
});

describe('the message of a database that cannot be used', () => {
  const refused = { code: 'ECONNREFUSED', address: '127.0.0.1', port: 5433 };

  it.each<[string, unknown, unknown, string]>([
    [
      'a connection string, without its password',
      'postgresql://clerk:not-to-be-shown@db.example/shop',
      refused,
      'PostgreSQL at db.example:5432: the connection was refused',
    ],
    [
      'a pool',
      { query: () => {}, options: { host: '::1', port: 6000 } },
      refused,
      'PostgreSQL at [::1]:6000: the connection was refused',
    ],
    [
      'the attempted address, for a client that does not report where it connects',
      { query: () => {} },
      Object.assign(new AggregateError([refused]), { code: 'ECONNREFUSED' }),
      'PostgreSQL at 127.0.0.1:5433: the connection was refused',
    ],
    [
      'a Unix socket',
      'postgresql:///shop?host=/run/postgresql',
      { code: '57P03' },
      'PostgreSQL at /run/postgresql: it is starting up',
    ],
    [
      'an unknown code',
      undefined,
      { code: 'XX000' },
      'PostgreSQL: the query failed with code XX000; see the cause of this error.',
    ],
    [
      'an error without a code',
      undefined,
      new Error('quotes a value'),
      'PostgreSQL: the query failed; see the cause of this error.',
    ],
  ])('names %s', (_, source, error, message) => {
    const failure = databaseFailure('The queue', error, describeServer(source));

    expect(failure.message).toContain(`The queue cannot use ${message}`);
    expect(failure.message).not.toMatch(/not-to-be-shown|quotes/);
  });
});

describe('a failure', () => {
  it.each([
    [
      'of a killed connection',
      'Client has encountered a connection error and is not queryable',
      'the connection was lost; retry',
    ],
    [
      'of a closed client',
      'Client was closed and is not queryable',
      'the connection was lost; retry',
    ],
    [
      'of a released query runner',
      'Query runner already released. Cannot run queries anymore.',
      'the transaction has ended',
    ],
  ])('%s is reported with its reason', (_, message, reason) => {
    expect(databaseFailure('The queue', new Error(message)).message).toContain(reason);
  });

  it.each<[string, boolean, string]>([
    ['08P01', true, 'a pooler cannot reach the server'],
    ['08006', true, 'the connection was lost'],
    ['53200', true, 'code 53200'],
    ['58030', true, 'code 58030'],
    ['25P03', true, 'the connection was lost'],
    ['57P05', true, 'the connection was lost'],
    ['ENOENT', true, 'its Unix socket, or a file'],
    ['EHOSTUNREACH', true, 'the host cannot be reached'],
    ['ENETUNREACH', true, 'code ENETUNREACH'],
    ['ERR_TLS_CERT_ALTNAME_INVALID', true, 'its certificate is for another host name'],
    // Only a migration can cause it.
    ['42P07', true, 'the table "migration" does not list them'],
    // A statement can cause these.
    ['57014', false, 'it has cancelled the statement'],
    ['22P05', false, 'code 22P05'],
    ['55P03', false, 'held'],
  ])('with the code %s is an outage: %s', (code, isOne, reason) => {
    expect(isOutage({ code })).toBe(isOne);
    expect(databaseFailure('The queue', { code }).message).toContain(reason);
  });
});
