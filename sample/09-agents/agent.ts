import { randomUUID } from 'node:crypto';
import { AgentCard, StreamResponse, TaskState } from '@a2a-js/sdk';
import {
  AgentEvent,
  type AgentExecutor,
  DefaultRequestHandler,
  InMemoryPushNotificationStore,
  InMemoryTaskStore,
  type PushNotificationSender,
} from '@a2a-js/sdk/server';
import { agentCardHandler, jsonRpcHandler, UserBuilder } from '@a2a-js/sdk/server/express';
import type { INestApplication } from '@nestjs/common';
import { WebhookPublisher } from 'nestjs-webhook-token';

/** Works on a task in two steps. */
const executor: AgentExecutor = {
  async execute({ taskId, contextId }, bus) {
    const status = (state: TaskState) => ({ state, message: undefined, timestamp: undefined });
    const { TASK_STATE_SUBMITTED, TASK_STATE_WORKING, TASK_STATE_COMPLETED } = TaskState;
    const task = { id: taskId, contextId, artifacts: [], history: [], metadata: undefined };
    bus.publish(AgentEvent.task({ ...task, status: status(TASK_STATE_SUBMITTED) }));
    for (const state of [TASK_STATE_WORKING, TASK_STATE_COMPLETED]) {
      bus.publish(
        AgentEvent.statusUpdate({ taskId, contextId, status: status(state), metadata: undefined }),
      );
    }
    bus.finished();
  },
  async cancelTask() {
    throw new Error('The tasks of this agent take no time');
  },
};

/** Sends each update to the URLs that the client has registered: signed, repeated until it is received, and through the egress guard. */
function pushBy(
  publisher: WebhookPublisher,
  store: InMemoryPushNotificationStore,
): PushNotificationSender {
  return {
    async send(update, context) {
      const { payload } = update;
      // A message of no task has no push notification configuration.
      if (payload === undefined || payload.$case === 'message') return;
      const taskId = payload.$case === 'task' ? payload.value.id : payload.value.taskId;
      const data = StreamResponse.toJSON(update);
      for (const { url } of await store.load(taskId, context)) {
        await publisher.send(url, `task.${payload.$case}`, data, {
          audience: url,
          id: randomUUID(),
        });
      }
    },
  };
}

/** Mounts the A2A server of the official SDK. */
export function mountAgent(app: INestApplication, origin: string): void {
  const card = AgentCard.fromJSON({
    name: 'Sample agent',
    description: 'Completes every task',
    version: '1.0.0',
    supportedInterfaces: [
      { url: `${origin}/a2a`, protocolBinding: 'JSONRPC', protocolVersion: '1.0' },
    ],
    capabilities: { streaming: true, pushNotifications: true },
    defaultInputModes: ['text/plain'],
    defaultOutputModes: ['text/plain'],
  });
  const store = new InMemoryPushNotificationStore();
  const requestHandler = new DefaultRequestHandler(
    card,
    new InMemoryTaskStore(),
    executor,
    undefined,
    store,
    pushBy(app.get(WebhookPublisher), store),
  );
  app.use('/.well-known/agent-card.json', agentCardHandler({ agentCardProvider: requestHandler }));
  app.use('/a2a', jsonRpcHandler({ requestHandler, userBuilder: UserBuilder.noAuthentication }));
}
