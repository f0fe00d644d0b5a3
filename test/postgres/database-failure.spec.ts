import { describe, expect, it } from '@jest/globals';
import { databaseFailure } from '../../lib/postgres/database-failure.js';

/** As libraries put it around the error of their driver. */
function quoting(code: string): Error {
  const fault = Object.assign(new Error('relation "x.replay" does not exist'), {
    code,
    where: 'a-value',
  });
  return Object.assign(new Error("Failed query: INSERT … VALUES ('a-value')"), { cause: fault });
}

describe('what is said of a failed statement', () => {
  it.each(['42P01', '42703', '55P03'])('quotes none of its values, not even below (%s)', (code) => {
    const failure = databaseFailure('The replay store', quoting(code));

    expect(failure.cause).toMatchObject({ code });
    expect(`${failure.message} ${JSON.stringify(failure)}`).not.toContain('a-value');
    expect(String((failure.cause as Error).stack)).not.toContain('a-value');
    expect(failure.cause).not.toHaveProperty('where');
  });
});
