/** Injection token of the replica's name. */
export const REPLICA_NAME = Symbol('REPLICA_NAME');
