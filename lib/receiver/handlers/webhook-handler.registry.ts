import { Injectable } from '@nestjs/common';
import type { ContextId } from '@nestjs/core';
import { nearestWord } from '../../options/option-shape.js';
import { EventRouter } from './event-router.js';
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
