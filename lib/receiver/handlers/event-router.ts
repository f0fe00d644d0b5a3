interface Node<T> {
  readonly children: Map<string, Node<T>>;
  readonly values: T[];
}

/** Names whose answer is remembered; a sender that is trusted but makes names up must not fill the memory. */
const REMEMBERED_NAMES = 4_096;

/**
 * Finds what was registered for an event, by name or pattern, at a cost that does not grow with the
 * number of patterns: a tree of segments, and a bounded memory of answers.
 */
export class EventRouter<T> {
  private readonly root: Node<T> = { children: new Map(), values: [] };
  private readonly answers = new Map<string, readonly T[]>();

  /**
   * @param pattern - a well-formed event name or pattern, see {@link eventPatternFault}
   */
  add(pattern: string, value: T): void {
    let node = this.root;
    for (const segment of pattern.split('.')) {
      let next = node.children.get(segment);
      if (next === undefined) {
        next = { children: new Map(), values: [] };
        node.children.set(segment, next);
      }
      node = next;
    }
    node.values.push(value);
    this.answers.clear();
  }

  /** Every value registered for the event, each once, in the order of registration within a pattern. */
  find(event: string): readonly T[] {
    let answer = this.answers.get(event);
    if (answer === undefined) {
      const found = new Set<T>();
      collect(this.root, event.split('.'), 0, found, new Set());
      answer = [...found];
      if (this.answers.size >= REMEMBERED_NAMES) this.answers.clear();
      this.answers.set(event, answer);
    }
    return answer;
  }
}

/** @param seen - `**` nodes already entered at a position, so that no pattern is walked twice from there */
function collect<T>(
  node: Node<T>,
  segments: readonly string[],
  at: number,
  found: Set<T>,
  seen: Set<string>,
  path = '',
): void {
  const deep = node.children.get('**');
  if (deep !== undefined) {
    const below = `${path}.**`;
    for (let i = at; i <= segments.length; i++) {
      const visit = `${i}${below}`;
      if (seen.has(visit)) break;
      seen.add(visit);
      collect(deep, segments, i, found, seen, below);
    }
  }
  const segment = segments[at];
  if (segment === undefined) {
    for (const value of node.values) found.add(value);
    return;
  }
  const exact = node.children.get(segment);
  if (exact !== undefined) collect(exact, segments, at + 1, found, seen, `${path}.${segment}`);
  const any = node.children.get('*');
  if (any !== undefined) collect(any, segments, at + 1, found, seen, `${path}.*`);
}
