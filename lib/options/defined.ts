/** The object without the members that are `undefined`, where those are refused or would be stored. */
export function defined<T extends object>(
  members: T,
): { [Name in keyof T]: Exclude<T[Name], undefined> } {
  const present = Object.entries(members).filter(([, value]) => value !== undefined);
  return Object.fromEntries(present) as { [Name in keyof T]: Exclude<T[Name], undefined> };
}
