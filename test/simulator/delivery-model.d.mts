/** @returns the state after these attempts, each of which succeeded or not, or `undefined` if the model does not allow them */
export function stateAfter(attempts: readonly boolean[]): string | undefined;
