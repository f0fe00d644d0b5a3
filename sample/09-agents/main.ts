import { randomUUID } from 'node:crypto';
import { SendMessageRequest } from '@a2a-js/sdk';
import { ClientFactory } from '@a2a-js/sdk/client';
import { NestFactory } from '@nestjs/core';
import { AgentModule } from './agent.module.js';
import { mountAgent } from './agent.js';
import { clientModule } from './client.module.js';

const port = process.env.PORT ?? '3009';
const clientPort = process.env.CLIENT_PORT ?? '3010';
const agentOrigin = `http://127.0.0.1:${port}`;
const clientOrigin = `http://127.0.0.1:${clientPort}`;

const agent = await NestFactory.create(AgentModule);
mountAgent(agent, agentOrigin);
await agent.listen(port, '127.0.0.1');

const client = await NestFactory.create(clientModule(agentOrigin, clientOrigin));
await client.listen(clientPort, '127.0.0.1');

for (const app of [agent, client]) app.enableShutdownHooks();

const a2aClient = await new ClientFactory().createFromUrl(agentOrigin);
const url = `${clientOrigin}/notifications`;
await a2aClient.sendMessage(
  SendMessageRequest.fromJSON({
    message: { messageId: randomUUID(), role: 'ROLE_USER', parts: [{ text: 'Do it' }] },
    configuration: { returnImmediately: true, taskPushNotificationConfig: { url } },
  }),
);
console.log('The client has sent a task, and waits for its updates');

// Anyone who knows the URL can post to it; without a token of the agent, nothing is received.
const forged = await fetch(url, {
  method: 'POST',
  headers: { 'content-type': 'application/a2a+json' },
  body: JSON.stringify({ statusUpdate: { taskId: 't', status: { state: 'TASK_STATE_FAILED' } } }),
});
console.log(`Without a token: ${forged.status} ${forged.headers.get('webhook-error')}`);
