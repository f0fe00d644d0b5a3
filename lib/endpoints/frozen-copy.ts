/** A copy of a value of JSON that nobody can change, so that it may be handed out without another copy. */
export function frozenCopy<T>(value: T): T {
  if (typeof value !== 'object' || value === null) return value;
  const copy: unknown = Array.isArray(value)
    ? value.map(frozenCopy)
    : // Own members, also one named __proto__.
      Object.fromEntries(Object.entries(value).map(([name, member]) => [name, frozenCopy(member)]));
  return Object.freeze(copy) as T;
}
