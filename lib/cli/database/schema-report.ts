import type { MigrationState } from '../../postgres/migrations/schema.migrator.js';

/** Whether tables are as this package wants them. */
type SchemaState = 'current' | 'behind' | 'ahead';

/** What `status --json` prints. */
export interface SchemaReport {
  readonly schema: string;
  /** Of the stores and of the queue together. */
  readonly state: SchemaState;
  /** The version this package knows. */
  readonly latest: number;
  readonly steps: readonly {
    readonly version: number;
    readonly name: string;
    /** ISO 8601; `null` while it is pending. */
    readonly appliedAt: string | null;
  }[];
  /** The tables of pg-boss; `null` where they are left out or it is not installed, its version `null` where there are none. */
  readonly queue: {
    readonly state: SchemaState;
    readonly version: number | null;
    readonly latest: number;
  } | null;
}

/** What was found. */
interface SchemaFindings {
  readonly schema: string;
  readonly latest: number;
  readonly steps: readonly MigrationState[];
  readonly queue: { readonly version: number | undefined; readonly latest: number } | undefined;
}

export function schemaReport({ schema, latest, steps, queue }: SchemaFindings): SchemaReport {
  const queueReport = queue && {
    state: queueState(queue.version ?? 0, queue.latest),
    version: queue.version ?? null,
    latest: queue.latest,
  };
  const own = ownState(steps, latest);
  return {
    schema,
    state: own === 'current' && queueReport?.state === 'behind' ? 'behind' : own,
    latest,
    steps: steps.map(({ version, name, appliedAt }) => ({
      version,
      name,
      appliedAt: appliedAt?.toISOString() ?? null,
    })),
    queue: queueReport ?? null,
  };
}

function ownState(steps: readonly MigrationState[], latest: number): SchemaState {
  if (steps.length > latest) return 'ahead';
  return steps.some(({ appliedAt }) => appliedAt === undefined) ? 'behind' : 'current';
}

function queueState(version: number, latest: number): SchemaState {
  if (version === latest) return 'current';
  return version < latest ? 'behind' : 'ahead';
}

const ADVICE: Readonly<Record<SchemaState, string>> = {
  current: 'It is up to date.',
  behind: 'It is behind this version of the package: run nestjs-webhook-token migrate.',
  ahead: 'It is ahead of this version of the package: a newer one has migrated it.',
};

export function schemaText({ schema, state, steps, queue }: SchemaReport): string {
  const width = Math.max(...steps.map(({ name }) => name.length), 'pg-boss'.length);
  const rows = steps.map(
    ({ version, name, appliedAt }) =>
      `  ${String(version).padStart(3)}  ${name.padEnd(width)}  ${appliedAt === null ? 'pending' : `applied ${appliedAt}`}`,
  );
  return [`The schema ${schema}:`, ...rows, ...queueRow(queue, width), ADVICE[state], ''].join(
    '\n',
  );
}

function queueRow(queue: SchemaReport['queue'], width: number): string[] {
  if (queue === null) return [];
  const found = queue.version === null ? 'not there' : `at ${queue.version}`;
  return [`       ${'pg-boss'.padEnd(width)}  ${found}, and ${queue.latest} is installed`];
}
