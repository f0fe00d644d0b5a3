import type { DemoProcess } from './demo-process.js';
import type { PublisherSkills, ReceiverSkills } from './skills.js';

/** The two processes of the demo. */
export interface Stage {
  readonly publisher: DemoProcess<PublisherSkills>;
  readonly receiver: DemoProcess<ReceiverSkills>;
  /** URL of the receiver's webhooks. */
  readonly url: string;
  readonly issuer: string;
}

/** One behaviour of the library, shown and checked. */
export interface Act {
  readonly title: string;
  play(stage: Stage): Promise<Scene>;
}

/** The outcome of an act. */
export interface Scene {
  readonly sent: string;
  readonly answered: string;
  /** The meaning of a correct outcome. */
  readonly outcome: string;
  /** What is wrong. */
  readonly faults: readonly string[];
}

/** Names the failed checks. */
export function faultsAmong(
  expectations: readonly (readonly [holds: boolean, fault: string])[],
): readonly string[] {
  return expectations.filter(([holds]) => !holds).map(([, fault]) => fault);
}
