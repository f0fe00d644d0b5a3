import { type Duration, parseDuration } from '../clock/duration.js';
import { Problems } from './problems.js';

/** {@link Problems} with a reader of durations, for constructors that do not read their options by rules. */
export class ConfigurationFaults extends Problems {
  /** Reads a positive duration; after a problem, returns the fallback. */
  duration(path: string, value: Duration | undefined, fallback: number): number {
    if (value === undefined) return fallback;
    const ms = parseDuration(value);
    if (ms !== undefined && ms > 0) return ms;
    this.add(path, "must be a positive duration, such as '15s' or 15000");
    return fallback;
  }
}
