import type { ProbeContext } from './probe.context.js';

/** The wire formats that have probes. */
export const CONFORMANCE_PROFILES = ['webhook-token', 'swt-draft-00', 'swt-draft-02'] as const;

/** Name of a wire format that has probes. */
export type ConformanceProfile = (typeof CONFORMANCE_PROFILES)[number];

/** What a probe is about. */
export const PROBE_GROUPS = ['accepts', 'token', 'body', 'replay', 'http'] as const;

/** Name of a group of probes. */
export type ProbeGroup = (typeof PROBE_GROUPS)[number];

/** One request, octet by octet as the probe wants it. */
export interface ProbeRequest {
  readonly method: string;
  /** Values of Authorization, one header each. */
  readonly authorization: readonly string[];
  /** Besides Host, Authorization and Content-Length. */
  readonly headers: readonly (readonly [name: string, value: string])[];
  /** What is written behind the head; absent for nothing. */
  readonly body?: Buffer | undefined;
  /** What Content-Length says; default the body's length, `null` for no such header. */
  readonly contentLength?: number | null | undefined;
  /** Goes on the connection of the request before it, once that was answered. */
  readonly sameConnection?: boolean | undefined;
}

/** What came back. */
export interface ProbeAnswer {
  readonly status: number;
  /** By lower-case name; repeated ones joined by a comma. */
  readonly headers: ReadonlyMap<string, string>;
  readonly body: string;
}

/** How a request ended: with an answer, or without one. */
export type ProbeOutcome =
  | ProbeAnswer
  /** The receiver ended the connection. */
  | 'closed'
  /** Nothing came within the time limit. */
  | 'timeout';

/** Looks at what came back, one outcome a request; says what is wrong, or nothing. */
export type Expectation = (
  outcomes: readonly ProbeOutcome[],
  context: ProbeContext,
) => string | undefined;

/** One thing that a receiver does or does not do. */
export interface Probe {
  /** `<group>.<name>`, stable. */
  readonly id: string;
  readonly group: ProbeGroup;
  readonly profiles: readonly ConformanceProfile[];
  readonly title: string;
  /** The rule behind it. */
  readonly reason: string;
  /** `must`: without it the receiver is not safe, or does not speak the protocol. `should`: it is advised. */
  readonly level: 'must' | 'should';
  /** @returns `undefined` where it cannot be asked: without a kid, without an audience, with a key pair */
  make(context: ProbeContext): readonly ProbeRequest[] | undefined;
  readonly expect: Expectation;
}

/** `error`: the connection broke. `skipped`: it cannot be asked with these settings. */
export type ProbeVerdict = 'pass' | 'warn' | 'fail' | 'error' | 'skipped';

/** A probe that was made. */
export interface ProbeResult {
  readonly probe: Probe;
  readonly verdict: ProbeVerdict;
  /** What is wrong; empty for a pass. Never holds a token. */
  readonly detail: string;
  /** The statuses that came back. */
  readonly statuses: readonly number[];
}
