import type { INestApplicationContext } from '@nestjs/common';
import type { PublisherSkills, ReceiverSkills } from './skills.js';

/** A question on its way between two processes: which skill, and with what. */
export interface Question {
  readonly skill: string;
  readonly with: readonly unknown[];
}

export type Reply = { readonly answer: unknown } | { readonly failure: string };

type AnySkills = Record<string, (...args: readonly unknown[]) => unknown>;

/** Tells the demo that the process runs, and where; then answers its questions until it hangs up. */
export function answerQuestions(
  app: INestApplicationContext,
  skills: PublisherSkills | ReceiverSkills,
  address: string,
): void {
  const reply = (message: Reply): void => void process.send?.(message);
  process.on('message', (question: Question) => {
    answer(skills as unknown as AnySkills, question).then(
      (answer) => reply({ answer }),
      (error: unknown) => reply({ failure: String(error) }),
    );
  });
  process.once('disconnect', () => void app.close());
  reply({ answer: address });
}

async function answer(skills: AnySkills, question: Question): Promise<unknown> {
  return skills[question.skill]!(...question.with);
}
