import { Injectable } from '@nestjs/common';
import type { ContextId } from '@nestjs/core';
import { nearestWord } from '../../options/option-names.js';
import type { WebhookEvent } from '../webhook-event.js';

/** A handler method with its pipes, guards, interceptors and filters. */
export interface WebhookHandler {
  /** `Class.method`, for messages. */
  readonly name: string;
  /**
   * @param scope - shared by all handlers of an event, so that request-scoped providers are created once
   */
  run(event: WebhookEvent, scope: () => ContextId): Promise<unknown>;
}

/** The handlers by event pattern: filled by the explorer at start-up, queried by the dispatcher. */
@Injectable()
export class WebhookHandlerRegistry {
  private readonly anyReceiver = new EventRouter<WebhookHandler>();
  private readonly byReceiver = new Map<string, EventRouter<WebhookHandler>>();
  private readonly patterns: { readonly pattern: string; readonly receiver: string | undefined }[] =
    [];

  /** @param receiver - the receiver whose events the handler gets; default: every receiver */
  add(pattern: string, receiver: string | undefined, handler: WebhookHandler): void {
    this.router(receiver).add(pattern, handler);
    this.patterns.push({ pattern, receiver });
  }

  find(receiver: string, event: string): readonly WebhookHandler[] {
    const any = this.anyReceiver.find(event);
    const own = this.byReceiver.get(receiver)?.find(event);
    if (own === undefined || own.length === 0) return any;
    return any.length === 0 ? own : [...new Set([...any, ...own])];
  }

  /** The pattern of a handler that is spelt most like an event's name, if one is close enough. */
  nearestPattern(receiver: string, event: string): string | undefined {
    const candidates = this.patterns
      .filter((one) => one.receiver === undefined || one.receiver === receiver)
      .map(({ pattern }) => pattern);
    return nearestWord(event, candidates);
  }

  private router(receiver: string | undefined): EventRouter<WebhookHandler> {
    if (receiver === undefined) return this.anyReceiver;
    let router = this.byReceiver.get(receiver);
    if (router === undefined) {
      router = new EventRouter();
      this.byReceiver.set(receiver, router);
    }
    return router;
  }
}

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
   * @param pattern - a well-formed event name or pattern, see {@link eventPatternProblem}
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
