import { WebhookConfigurationError, type ConfigurationProblem } from '../errors/webhook.error.js';

/** What a reading has found; shared by all levels of the options. */
interface Findings {
  readonly problems: ConfigurationProblem[];
  readonly warnings: ConfigurationProblem[];
  /** Paths that misspelt options probably mean: if one seems to be missing, that has the same cause. */
  readonly meant: string[];
}

/**
 * Collects the problems of options, so that all of them are reported at once. Each instance stands for one object of the options,
 * and names its members relative to itself.
 */
export class Problems {
  constructor(
    private readonly path = '',
    private readonly findings: Findings = { problems: [], warnings: [], meant: [] },
  ) {}

  get all(): readonly ConfigurationProblem[] {
    return this.findings.problems;
  }

  /** Options that can be used, but probably not as intended. */
  get warnings(): readonly ConfigurationProblem[] {
    return this.findings.warnings;
  }

  /** The same collection, one level down. */
  below(name: string): Problems {
    return new Problems(this.at(name), this.findings);
  }

  /** The full path of an option. */
  at(name: string): string {
    const isMember = this.path !== '' && name !== '' && !name.startsWith('[');
    return isMember ? `${this.path}.${name}` : `${this.path}${name}`;
  }

  /** Adds a problem. Returns `undefined`, so that a rule can end with it. */
  add(name: string, message: string): undefined {
    this.findings.problems.push({ path: this.at(name), message });
  }

  require(condition: boolean, name: string, message: string): void {
    if (!condition) this.add(name, message);
  }

  /** Adds a problem if the object that was read has no members. @param remedy - such as `pass a tenant or an id` */
  requireMembers(read: object, remedy: string): void {
    const hasSome = Object.values(read).some((value) => value !== undefined);
    this.require(this.has('') || hasSome, '', `has no members; ${remedy}`);
  }

  /** Adds problems that other code has found, but no second one for the same option. */
  addOthers(found: readonly ConfigurationProblem[]): void {
    const others = found.filter(({ path }) => !this.has(path));
    for (const { path, message } of others) this.add(path, message);
  }

  warn(name: string, message: string): void {
    this.findings.warnings.push({ path: this.at(name), message });
  }

  /** Notes which option a misspelt one probably means. */
  meant(name: string): void {
    this.findings.meant.push(this.at(name));
  }

  /** Whether one of these options, a part of it, or what it is a part of, has a problem or seems to be misspelt. */
  has(...names: readonly string[]): boolean {
    const { problems, meant } = this.findings;
    return names.some((name) => {
      const path = this.at(name);
      return (
        problems.some((problem) => concern(problem.path, path)) ||
        meant.some((other) => concern(other, path))
      );
    });
  }

  /** @throws {@link WebhookConfigurationError} with every problem, if there is one */
  throwIfAny(): void {
    if (this.all.length > 0) throw new WebhookConfigurationError(this.all);
  }
}

/** Whether two paths are equal, or one contains the other. */
function concern(one: string, other: string): boolean {
  const [short, long] = one.length < other.length ? [one, other] : [other, one];
  return short === '' || (long.startsWith(short) && /^(?:[.[]|$)/.test(long.slice(short.length)));
}
