/** Finds a program of the operating system. */
export function program(name: string): string | undefined;
