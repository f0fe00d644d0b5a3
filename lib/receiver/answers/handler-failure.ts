/**
 * A handler threw: what it threw, set apart from the errors of the receiver itself, so that an
 * application that throws one of ours in a handler is not mistaken for a refused token.
 */
export class HandlerFailure {
  constructor(readonly cause: unknown) {}
}
