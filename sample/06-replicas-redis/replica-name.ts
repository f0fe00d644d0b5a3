/** Injects the name of the replica that handles an event. */
export const REPLICA_NAME = Symbol('REPLICA_NAME');
