import { LIMITED } from './unreliable-proxy.mjs';

const STORES = {
  postgres: 'PostgreSQL, in one transaction with the effect',
  redis: 'Redis',
  pglite: 'PGlite',
  none: 'none',
};

const COLUMNS = {
  Queue: ({ engine }) => engine,
  'Replay store': ({ replay }) => STORES[replay],
  Published: ({ published }) => published,
  Attempts: ({ attempts }) => attempts,
  Kills: ({ kills }) => kills,
  'Answers lost': ({ answersLost }) => answersLost,
  'Handler failures': ({ handlerFailures }) => handlerFailures,
  Lost: ({ lost }) => lost,
  'Out of order': ({ outOfOrder }) => outOfOrder,
  'Run twice': ({ ranTwice }) => ranTwice,
  'Effects doubled': ({ doubled }) => doubled,
};

export function toMarkdown(rows) {
  const cells = [
    Object.keys(COLUMNS),
    Object.keys(COLUMNS).map(() => '---'),
    ...rows.map((row) => Object.values(COLUMNS).map((cell) => cell(row).toLocaleString('en-GB'))),
  ];
  return cells.map((row) => `| ${row.join(' | ')} |`).join('\n');
}

/**
 * Losses are allowed in memory only, and double effects only without a replay store. The limit of an endpoint holds for the
 * senders of one server together.
 */
export function meetsGuarantee({ engine, replay, lost, doubled, outOfOrder, mostAtOnce }) {
  const keepsLimit = mostAtOnce <= LIMITED.concurrency || !['postgres', 'bullmq'].includes(engine);
  const keepsEvents = engine === 'memory' || lost === 0;
  return keepsEvents && keepsLimit && outOfOrder === 0 && (replay === 'none' || doubled === 0);
}
