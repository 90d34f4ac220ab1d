// An agent of the official JavaScript SDK: it says a text in capitals, and appends each text that it was asked to the file.
// Arguments: the binding that its card names, and the file. Prints its URL.
import { appendFileSync } from 'node:fs';
import { TaskState, Role } from '@a2a-js/sdk';
import { AgentEvent, DefaultRequestHandler, InMemoryTaskStore } from '@a2a-js/sdk/server';
import { agentCardHandler, jsonRpcHandler, restHandler, UserBuilder } from '@a2a-js/sdk/server/express';
import express from 'express';

const [binding, effects] = process.argv.slice(2);
const stops = new Map();
const said = (text) => ({ content: { $case: 'text', value: text }, metadata: undefined, filename: '', mediaType: '' });

const executor = {
  async execute({ taskId, contextId, userMessage }, bus) {
    const text = userMessage.parts.map((part) => (part.content?.$case === 'text' ? part.content.value : '')).join('');
    const status = (state, message) => ({ state, message, timestamp: new Date().toISOString() });
    const update = (state, message) =>
      bus.publish(AgentEvent.statusUpdate({ taskId, contextId, status: status(state, message), metadata: undefined }));
    const task = { id: taskId, contextId, status: status(TaskState.TASK_STATE_SUBMITTED), artifacts: [], history: [] };
    bus.publish(AgentEvent.task(task));
    update(TaskState.TASK_STATE_WORKING);
    appendFileSync(effects, `${text}\n`);
    if (text.startsWith('fail')) {
      const message = { messageId: `${taskId}-end`, taskId, contextId, role: Role.ROLE_AGENT, extensions: [],
        parts: [said('it cannot shout that')], referenceTaskIds: [], metadata: undefined };
      update(TaskState.TASK_STATE_FAILED, message);
      return bus.finished();
    }
    if (text.startsWith('slow')) {
      await new Promise((stop) => stops.set(taskId, stop));
      update(TaskState.TASK_STATE_CANCELED);
      return bus.finished();
    }
    const artifact = { artifactId: 'shout', name: 'shout', description: '', parts: [said(text.toUpperCase())], extensions: [] };
    bus.publish(AgentEvent.artifactUpdate({ taskId, contextId, artifact, append: false, lastChunk: true }));
    update(TaskState.TASK_STATE_COMPLETED);
    bus.finished();
  },
  async cancelTask(taskId) {
    stops.get(taskId)?.();
  },
};

const app = express();
const server = app.listen(0, '127.0.0.1', () => {
  const url = `http://127.0.0.1:${server.address().port}`;
  const skill = { id: 'shout', name: 'Shout', description: 'Says a text in capitals', tags: ['words'],
    examples: [], inputModes: [], outputModes: [], securityRequirements: [] };
  const card = {
    name: 'shouts', description: 'Says a text in capitals', version: '1.0.0',
    supportedInterfaces: [{ url: `${url}/a2a`, protocolBinding: binding, protocolVersion: '1.0', tenant: '' }],
    provider: undefined, capabilities: { streaming: true, extensions: [] },
    securitySchemes: {}, securityRequirements: [], signatures: [],
    defaultInputModes: ['text/plain'], defaultOutputModes: ['text/plain'], skills: [skill],
  };
  const requestHandler = new DefaultRequestHandler(card, new InMemoryTaskStore(), executor);
  const userBuilder = UserBuilder.noAuthentication;
  app.use('/.well-known/agent-card.json', agentCardHandler({ agentCardProvider: requestHandler }));
  app.use('/a2a', (binding === 'JSONRPC' ? jsonRpcHandler : restHandler)({ requestHandler, userBuilder }));
  console.log(url);
});
