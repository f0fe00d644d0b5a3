import { Injectable, Logger, Module } from '@nestjs/common';
import {
  OnWebhookEvent,
  WebhookContext,
  type WebhookEvent,
  WebhookModule,
} from 'nestjs-webhook-token';
import { a2a } from 'nestjs-webhook-token/senders';
import { AGENT } from './agent.module.js';

@Injectable()
export class TaskUpdates {
  private readonly logger = new Logger(TaskUpdates.name);

  @OnWebhookEvent('task.*', { receiver: 'agent' })
  on(@WebhookContext() event: WebhookEvent): void {
    // The token proves who sent it, and does not cover the body: a real client now asks the agent for the task.
    this.logger.log(`The agent pushes ${event.event}, body signed: ${event.bodyVerified}`);
  }
}

/** @param origins - of the agent and of this client */
export function clientModule(agent: string, client: string): new () => object {
  @Module({
    imports: [
      WebhookModule.forRoot({
        receiver: {
          name: 'agent',
          path: 'notifications',
          sender: a2a({
            issuer: AGENT,
            audience: `${client}/notifications`,
            jwksUri: `${agent}/.well-known/webhook-keys`,
            jwksFetch: { allowHttp: true, allowPrivateNetworks: true },
          }),
        },
      }),
    ],
    providers: [TaskUpdates],
  })
  class ClientModule {}
  return ClientModule;
}
