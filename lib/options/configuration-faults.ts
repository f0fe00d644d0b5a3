import { parseDuration, type Duration } from '../clock/duration.js';
import type { ConfigurationProblem } from '../errors/webhook.error.js';

/** Collects the faults of the options below one path, so that start-up can report all of them at once. */
export class ConfigurationFaults {
  private readonly collected: ConfigurationProblem[];

  constructor(
    private readonly path: string,
    collected: ConfigurationProblem[] = [],
  ) {
    this.collected = collected;
  }

  get all(): readonly ConfigurationProblem[] {
    return this.collected;
  }

  /** The same collection, one level down. */
  below(path: string): ConfigurationFaults {
    return new ConfigurationFaults(this.join(path), this.collected);
  }

  /** The full path of an option. */
  at(path: string): string {
    return this.join(path);
  }

  add(path: string, message: string): void {
    this.collected.push({ path: this.join(path), message });
  }

  /** Adds a fault unless the condition holds. */
  require(condition: boolean, path: string, message: string): void {
    if (!condition) this.add(path, message);
  }

  /**
   * Reads a positive duration; on a fault, returns the fallback.
   *
   * @param longest - the longest one allowed, as it would be written
   */
  duration(path: string, value: Duration | undefined, fallback: number, longest?: string): number {
    if (value === undefined) return fallback;
    const ms = parseDuration(value);
    const max = parseDuration(longest) ?? Infinity;
    if (ms !== undefined && ms > 0 && ms <= max) return ms;
    const bound = longest === undefined ? '' : ` of at most '${longest}'`;
    this.add(path, `must be a positive duration${bound}, such as '15s' or 15000`);
    return fallback;
  }

  private join(path: string): string {
    return this.path === '' || path === '' ? `${this.path}${path}` : `${this.path}.${path}`;
  }
}
