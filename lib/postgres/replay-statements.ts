/** Entries that have expired and are removed with one reservation. */
const PRUNED = 4;

/**
 * The statements of the replay store.
 *
 * One table holds both keys of a claim: an event's row has `id = event`, a token's row the event it came with. So a token
 * that was an event, and an event that was a token, are found by the same comparison. A row whose time is over is as
 * good as none. Times are the server's; durations come from the receiver.
 */
export class ReplayStatements {
  /** `$1` event, `$2` token, `$3` fingerprint, `$4` owner, `$5` lease and `$6` time to keep, in milliseconds. */
  readonly reserve: string;

  /** `$1` event, `$2` token, `$3` owner, `$4` lease in milliseconds. */
  readonly extend: string;

  /** `$1` event, `$2` token, `$3` owner. */
  readonly commit: string;

  /** `$1` event, `$2` token, `$3` owner. */
  readonly release: string;

  /** Gives back a token that was taken for an event which turned out to be a conflict. Values as for `release`. */
  readonly freeToken: string;

  constructor(schema: string) {
    const table = `${schema}.replay`;
    const now = 'clock_timestamp()';
    const ms = (parameter: string): string => `${parameter}::float8 * interval '1 ms'`;
    const values = `$1, $3, $4, ${now} + ${ms('$5')}, ${now} + ${ms('$6')}`;
    const taken = `known.expires_at > ${now}`;
    const copy = `known.event = excluded.event AND known.fingerprint = excluded.fingerprint`;
    const unlessTaken = (column: string): string =>
      `${column} = CASE WHEN ${taken} THEN known.${column} ELSE excluded.${column} END`;
    const later = (column: string): string => `${column} = CASE
      WHEN NOT ${taken} THEN excluded.${column}
      WHEN known.event = excluded.event THEN greatest(known.${column}, excluded.${column})
      ELSE known.${column} END`;
    const take = ['event', 'fingerprint', 'owner', 'done'].map(unlessTaken).join(', ');

    // The token first: where it belongs to another event, that event is not looked at. What is written reads the row as it is
    // when its turn has come, not as it was when the statement began; so of two at once one sees the other's.
    this.reserve = `WITH pruned AS (
  DELETE FROM ${table} WHERE id IN (
    SELECT id FROM ${table} WHERE expires_at <= now() AND id <> $1 AND id <> $2
    ORDER BY expires_at LIMIT ${PRUNED} FOR UPDATE SKIP LOCKED
  )
), token AS (
  INSERT INTO ${table} AS known (id, event, fingerprint, owner, expires_at, keep_until)
  SELECT $2, ${values} WHERE $1::text <> $2::text
  ON CONFLICT (id) DO UPDATE SET ${take}, ${later('expires_at')}, ${later('keep_until')}
  RETURNING known.event
), claimed AS (
  INSERT INTO ${table} AS known (id, event, fingerprint, owner, expires_at, keep_until)
  SELECT $1, ${values} WHERE $1::text = $2::text OR (SELECT event FROM token) = $1::text
  ON CONFLICT (id) DO UPDATE SET ${take},
    expires_at = CASE
      WHEN NOT ${taken} THEN excluded.expires_at
      WHEN known.done AND ${copy} THEN greatest(known.expires_at, excluded.keep_until)
      ELSE known.expires_at END,
    keep_until = CASE
      WHEN NOT ${taken} THEN excluded.keep_until
      WHEN ${copy} THEN greatest(known.keep_until, excluded.keep_until)
      ELSE known.keep_until END
  RETURNING event, fingerprint, owner, done,
    ceil(extract(epoch FROM expires_at - ${now}) * 1000)::float8 AS remaining
)
SELECT * FROM claimed`;

    // The holder of the event holds its token, whichever copy has brought it.
    const held = `id = $1 AND event = $1 AND owner = $3 AND NOT done AND expires_at > ${now}`;
    const itsToken = `id = $2 AND id <> $1 AND event = $1 AND EXISTS (SELECT FROM held)`;
    const both = (change: (which: string) => string): string =>
      `WITH held AS (${change(held)} RETURNING id), token AS (${change(itsToken)}) SELECT id FROM held`;
    const set = (columns: string) => (which: string) =>
      `UPDATE ${table} SET ${columns} WHERE ${which}`;
    this.extend = both(set(`expires_at = ${now} + ${ms('$4')}`));
    this.commit = both(set('done = true, owner = NULL, expires_at = keep_until'));
    this.release = both((which) => `DELETE FROM ${table} WHERE ${which}`);
    this.freeToken = `DELETE FROM ${table} WHERE id = $2 AND event = $1 AND owner = $3 AND NOT done`;
  }
}
