import { HttpException } from '@nestjs/common';
import { answerTo, type WebhookAnswer } from './webhook-answer.js';

/**
 * A webhook was refused, as Nest's exception layer knows it. Status and body follow the answer table.
 */
export class WebhookException extends HttpException {
  /** The stable code of the answer table; `undefined` for an event that is only acknowledged again. */
  readonly code: string | undefined;

  constructor(
    /** @internal */
    readonly answer: WebhookAnswer,
  ) {
    super({ ...answer.problem }, answer.status);
    this.code = answer.problem?.code;
    this.message = answer.problem?.detail ?? 'the event was handled before';
  }

  /** The exception for whatever the way of a request threw. */
  static from(error: unknown): WebhookException {
    return error instanceof WebhookException ? error : new WebhookException(answerTo(error));
  }

  /**
   * The answer to whatever the way of a request threw.
   *
   * @internal
   */
  static answerTo(error: unknown): WebhookAnswer {
    return error instanceof WebhookException ? error.answer : answerTo(error);
  }
}
