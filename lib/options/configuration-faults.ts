import { parseDuration, type Duration } from '../clock/duration.js';
import type { ConfigurationFault } from '../errors/webhook.error.js';

/** Collects every fault of the options below one path, so that start-up can name all of them at once. */
export class ConfigurationFaults {
  private readonly collected: ConfigurationFault[];

  constructor(
    private readonly path: string,
    collected: ConfigurationFault[] = [],
  ) {
    this.collected = collected;
  }

  get all(): readonly ConfigurationFault[] {
    return this.collected;
  }

  /** The same collection, one level down. */
  below(path: string): ConfigurationFaults {
    return new ConfigurationFaults(this.join(path), this.collected);
  }

  /** Where an option stands, from the root. */
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

  /** Reads a duration above zero; on a fault, gives the fallback. */
  duration(path: string, value: Duration | undefined, fallback: number): number {
    if (value === undefined) return fallback;
    const ms = parseDuration(value);
    if (ms !== undefined && ms > 0) return ms;
    this.add(path, "is no duration above 0: write milliseconds, or a text like '15s' or '5m'");
    return fallback;
  }

  private join(path: string): string {
    return this.path === '' || path === '' ? `${this.path}${path}` : `${this.path}.${path}`;
  }
}
