import type { INestApplicationContext } from '@nestjs/common';
import type { PublisherSkills, ReceiverSkills } from './skills.js';

/** A call from the demo to one of its processes: the name of the skill, and its arguments. */
export interface Question {
  readonly skill: string;
  readonly with: readonly unknown[];
}

export type Reply = { readonly answer: unknown } | { readonly failure: string };

type AnySkills = Record<string, (...args: readonly unknown[]) => unknown>;

/** Reports the process's address to the demo, then answers its questions until it disconnects. */
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
