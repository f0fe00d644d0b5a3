import type { ConformanceProfile, Probe, ProbeGroup } from '../probe.interface.js';
import { ACCEPTS_PROBES } from './accepts.probes.js';
import { BODY_PROBES } from './body.probes.js';
import { CLAIM_PROBES } from './claims.probes.js';
import { HTTP_PROBES } from './http.probes.js';
import { REPLAY_PROBES } from './replay.probes.js';
import { SIGNATURE_PROBES } from './signature.probes.js';

/** Every probe; the first is the one that must be accepted for the others to say anything. */
const ALL_PROBES: readonly Probe[] = [
  ...ACCEPTS_PROBES,
  ...SIGNATURE_PROBES,
  ...CLAIM_PROBES,
  ...BODY_PROBES,
  ...REPLAY_PROBES,
  ...HTTP_PROBES,
];

/** The probes of a format; with a group, those and the first one. */
export function probesFor(profile: ConformanceProfile, only?: ProbeGroup): readonly Probe[] {
  return ALL_PROBES.filter(
    ({ profiles, group }, index) =>
      profiles.includes(profile) && (only === undefined || group === only || index === 0),
  );
}
