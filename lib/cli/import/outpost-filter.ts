import { BY_HAND, membersOf } from './source-endpoint.js';

/** Operators that mean the same here, for single values. */
const OPERATORS: ReadonlySet<string> = new Set([
  '$eq',
  '$gt',
  '$gte',
  '$lt',
  '$lte',
  '$in',
  '$startsWith',
]);

export interface TranslatedFilter {
  readonly filter: object;
  readonly problems: readonly string[];
  /** Whether it has operators, which look into lists here and do not in Outpost. */
  readonly hasOperators: boolean;
}

/** Translates a filter of Outpost, as far as it selects the same events here. */
export function translateOutpostFilter(filter: unknown): TranslatedFilter {
  const translation = new Translation();
  const translated = translation.top(filter, 'filter');
  const { problems, hasOperators } = translation;
  return { filter: translated, problems, hasOperators };
}

class Translation {
  readonly problems: string[] = [];
  hasOperators = false;

  top(condition: unknown, path: string): object {
    const entries = Object.entries(membersOf(condition)).map(([name, operand]) => {
      const at = `${path}.${name}`;
      if (name === '$and' || name === '$or') {
        const all = Array.isArray(operand) ? (operand as unknown[]) : [];
        return [name, all.map((one, index) => this.top(one, `${at}[${index}]`))];
      }
      if (name === 'topic') return ['event', this.value(operand, at)];
      if (name === 'data') return ['data', this.members(operand, at, true)];
      return this.refuse(at, 'events have no such member here');
    });
    return Object.fromEntries(entries) as object;
  }

  private members(condition: unknown, path: string, isTop = false): object {
    const entries = Object.entries(membersOf(condition)).map(([name, operand]) => {
      const at = `${path}.${name}`;
      // Outpost ignores the conditions beside such a member.
      if (name.startsWith('$')) return this.refuse(at, 'is read at the top of a filter only');
      return [name, this.value(operand, at, isTop)];
    });
    return Object.fromEntries(entries) as object;
  }

  /** @param isTop - whether it is a member of the data itself: what is missing deeper down is not compared in Outpost */
  private value(operand: unknown, path: string, isTop = false): unknown {
    if (Array.isArray(operand)) {
      this.refuse(path, 'compares with a list');
      return undefined;
    }
    if (typeof operand !== 'object' || operand === null) return operand;
    const names = Object.keys(operand);
    if (!names.some((name) => name.startsWith('$'))) return this.members(operand, path);
    const entries = Object.entries(operand).map(([name, compared]) => {
      if (OPERATORS.has(name)) {
        this.hasOperators = true;
        return [name, compared];
      }
      const isExistence = name === '$exist' && names.length === 1 && (isTop || compared === true);
      return isExistence
        ? ['$exists', compared]
        : this.refuse(`${path}.${name}`, 'selects other events here');
    });
    return Object.fromEntries(entries) as object;
  }

  private refuse(path: string, reason: string): [string, undefined] {
    this.problems.push(`${path}: ${reason}; ${BY_HAND}`);
    return ['', undefined];
  }
}
