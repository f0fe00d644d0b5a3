import type { DemoProcess } from './demo-process.js';
import type { PublisherSkills, ReceiverSkills } from './skills.js';

/** Who plays. */
export interface Stage {
  readonly publisher: DemoProcess<PublisherSkills>;
  readonly receiver: DemoProcess<ReceiverSkills>;
  /** Where the receiver's webhooks arrive. */
  readonly url: string;
  readonly issuer: string;
}

/** One thing the library does, shown and checked. */
export interface Act {
  readonly title: string;
  play(stage: Stage): Promise<Scene>;
}

/** What happened, for the reader. */
export interface Scene {
  readonly sent: string;
  readonly answered: string;
  /** What it means, when all is as it should be. */
  readonly outcome: string;
  /** What is not as it should be. */
  readonly faults: readonly string[];
}

/** Names what does not hold. */
export function faultsAmong(
  expectations: readonly (readonly [holds: boolean, fault: string])[],
): readonly string[] {
  return expectations.filter(([holds]) => !holds).map(([, fault]) => fault);
}
