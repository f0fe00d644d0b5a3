import type { ProbeContext } from './probe.context.js';

/** The wire formats that have probes. */
export const CONFORMANCE_PROFILES = ['webhook-token', 'swt-draft-00', 'swt-draft-02'] as const;

/** A wire format that has probes. */
export type ConformanceProfile = (typeof CONFORMANCE_PROFILES)[number];

export const PROBE_GROUPS = ['accepts', 'token', 'body', 'replay', 'http'] as const;

export type ProbeGroup = (typeof PROBE_GROUPS)[number];

/** One request, exactly as it is sent. */
export interface ProbeRequest {
  readonly method: string;
  /** One Authorization header for each value. */
  readonly authorization: readonly string[];
  /** Besides Host, Authorization and Content-Length. */
  readonly headers: readonly (readonly [name: string, value: string])[];
  /** Absent if no bytes follow the head. */
  readonly body?: Buffer | undefined;
  /** Value of Content-Length; default the body's length, `null` for a body in chunks. */
  readonly contentLength?: number | null | undefined;
  /** Sent on the connection of the previous request, after its answer. */
  readonly sameConnection?: boolean | undefined;
}

export interface ProbeAnswer {
  readonly status: number;
  /** By lower-case name; repeated headers are joined by a comma. */
  readonly headers: ReadonlyMap<string, string>;
  readonly body: string;
}

export type ProbeOutcome =
  | ProbeAnswer
  /** The receiver closed the connection. */
  | 'closed'
  /** No answer arrived within the time limit. */
  | 'timeout';

/** Checks the outcomes, one per request. Returns what is wrong, or `undefined`. */
export type Expectation = (
  outcomes: readonly ProbeOutcome[],
  context: ProbeContext,
) => string | undefined;

export interface Probe {
  /** `<group>.<name>`, stable. */
  readonly id: string;
  readonly group: ProbeGroup;
  readonly profiles: readonly ConformanceProfile[];
  readonly title: string;
  readonly reason: string;
  /** `must`: required for security or for the protocol. `should`: recommended. */
  readonly level: 'must' | 'should';
  /** @returns `undefined` if it does not apply, for example without a kid or an audience */
  make(context: ProbeContext): readonly ProbeRequest[] | undefined;
  readonly expect: Expectation;
}

/** `error`: the connection broke. `skipped`: it does not apply with these settings. */
export type ProbeVerdict = 'pass' | 'warn' | 'fail' | 'error' | 'skipped';

export interface ProbeResult {
  readonly probe: Probe;
  readonly verdict: ProbeVerdict;
  /** What is wrong; empty if it passed. Never contains a token. */
  readonly detail: string;
  readonly statuses: readonly number[];
}
