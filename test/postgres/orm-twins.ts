/** Runs a statement with `$1`, `$2` for values. */
export type RunStatement = (
  text: string,
  values?: readonly unknown[],
) => Promise<{ rows: unknown[]; rowCount?: number | null }>;

/** What a library hands out in a transaction and outside of one, as far as it can be told from others. */
interface OrmTwin {
  readonly name: string;
  readonly open: (run: RunStatement) => unknown;
  readonly closed: () => unknown;
}

const noop = (): void => {};

function queryRunner(isTransactionActive: boolean, run: RunStatement) {
  return {
    isTransactionActive,
    startTransaction: noop,
    async query(text: string, values: unknown[], isStructured?: boolean): Promise<unknown> {
      const { rows, rowCount } = await run(text, values);
      return isStructured === true ? { records: rows, raw: rows, affected: rowCount } : rows;
    },
  };
}

/** A knex counts question marks, of which `\?` is none, and numbers them for the driver. */
function knex(run: RunStatement, transaction: object): unknown {
  const raw = async (text: string, bindings: readonly unknown[]): Promise<unknown> => {
    let at = 0;
    const numbered = text.replace(/(\\)?\?/g, (_, escape) => (escape ? '?' : `$${++at}`));
    if (at !== bindings.length) throw new Error(`expected ${at} bindings`);
    return run(numbered, bindings);
  };
  return Object.assign(noop.bind(undefined), { raw, transaction: noop, ...transaction });
}

const none: RunStatement = async () => ({ rows: [] });

export const ORMS: readonly OrmTwin[] = [
  {
    name: 'TypeORM (EntityManager)',
    open: (run) => ({
      queryRunner: queryRunner(true, run),
      getRepository: noop,
      query: noop,
    }),
    closed: () => ({ queryRunner: undefined, getRepository: noop, query: noop }),
  },
  {
    name: 'TypeORM (QueryRunner)',
    open: (run) => queryRunner(true, run),
    closed: () => queryRunner(false, none),
  },
  {
    name: 'Prisma',
    open: (run) => ({
      $executeRawUnsafe: noop,
      $queryRawUnsafe: async (text: string, ...values: unknown[]) => (await run(text, values)).rows,
    }),
    closed: () => ({ $executeRawUnsafe: noop, $queryRawUnsafe: noop, $connect: noop }),
  },
  {
    name: 'Drizzle',
    open: (run) => ({
      session: { run },
      select: noop,
      transaction: noop,
      rollback: noop,
      execute(this: { session: { run: RunStatement } }, query: string) {
        return this.session.run(query);
      },
    }),
    closed: () => ({ select: noop, transaction: noop, execute: noop }),
  },
  {
    name: 'Kysely',
    open: (run) => ({
      isTransaction: true,
      selectFrom: noop,
      executeQuery: async ({ sql, parameters }: { sql: string; parameters: unknown[] }) =>
        run(sql, parameters),
    }),
    closed: () => ({ isTransaction: false, selectFrom: noop, executeQuery: noop }),
  },
  {
    name: 'Knex',
    open: (run) => knex(run, { commit: noop, rollback: noop }),
    closed: () => knex(none, {}),
  },
];
