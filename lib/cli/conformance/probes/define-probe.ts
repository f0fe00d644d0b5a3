import { ACCEPTED, REFUSED } from '../expectations.js';
import type { Forgery, ProbeContext } from '../probe.context.js';
import {
  CONFORMANCE_PROFILES,
  type ConformanceProfile,
  type Probe,
  type ProbeGroup,
  type ProbeRequest,
} from '../probe.interface.js';

/** One request or several; `undefined` where the probe cannot be made. */
type Make = (context: ProbeContext) => ProbeRequest | readonly ProbeRequest[] | undefined;

/** What differs from a probe that must hold in every format. */
type More = Partial<Pick<Probe, 'level' | 'profiles' | 'expect'>>;

/** The default format alone. */
export const DEFAULT_ONLY: { readonly profiles: readonly ConformanceProfile[] } = {
  profiles: ['webhook-token'],
};

/** The formats in which small events travel inline by HEAD. */
export const INLINE: { readonly profiles: readonly ConformanceProfile[] } = {
  profiles: ['webhook-token', 'swt-draft-00'],
};

/** The formats that allow for clocks that differ. */
export const TOLERANT: { readonly profiles: readonly ConformanceProfile[] } = {
  profiles: ['webhook-token', 'swt-draft-02'],
};

/** The formats whose digest stands in `webhook.hash`. */
export const HASHED = TOLERANT;

/** Not needed to be safe or to be understood. */
export const ADVISED = { level: 'should' } as const;

/** Writes the probes of one group: what must be accepted, and what must be refused. */
export function probesOf(group: ProbeGroup): {
  accepted(name: string, title: string, reason: string, make: Make | Forgery, more?: More): Probe;
  refused(name: string, title: string, reason: string, make: Make | Forgery, more?: More): Probe;
} {
  const define =
    (expect: Probe['expect']) =>
    (
      name: string,
      title: string,
      reason: string,
      make: Make | Forgery,
      more: More = {},
    ): Probe => ({
      id: `${group}.${name}`,
      group,
      title,
      reason,
      profiles: CONFORMANCE_PROFILES,
      level: 'must',
      expect,
      ...more,
      make: (context) => {
        const made = typeof make === 'function' ? make(context) : context.request(make);
        if (made === undefined) return undefined;
        return Array.isArray(made) ? (made as ProbeRequest[]) : [made as ProbeRequest];
      },
    });
  return { accepted: define(ACCEPTED), refused: define(REFUSED) };
}
