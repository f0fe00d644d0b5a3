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
  /** What a correct outcome shows. */
  readonly outcome: string;
  /** The checks that failed. */
  readonly failures: readonly string[];
}

/** Returns the messages of the expectations that do not hold. */
export function failuresAmong(
  expectations: readonly (readonly [holds: boolean, failure: string])[],
): readonly string[] {
  return expectations.filter(([holds]) => !holds).map(([, failure]) => failure);
}
