/** Injection token of the {@link Database}. */
export const DATABASE = Symbol('DATABASE');
