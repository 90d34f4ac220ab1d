// A client of the official JavaScript SDK. Arguments: the agent's URL, a binding, and a skill. Prints what it was told as JSON.
import { randomUUID } from 'node:crypto';
import { Role, StreamResponse, Task, TaskState, verifyAgentCardSignature } from '@a2a-js/sdk';
import { ClientFactory, ClientFactoryOptions, DefaultAgentCardResolver } from '@a2a-js/sdk/client';

const [url, binding, skill] = process.argv.slice(2);
const alphabet = '123456789ABCDEFGHJKLMNPQRSTUVWXYZabcdefghijkmnopqrstuvwxyz';

// The Ed25519 key that a did:key is.
const keyOf = async (kid) => {
  const digits = kid.slice('did:key:z'.length);
  const number = [...digits].reduce((sum, letter) => sum * 58n + BigInt(alphabet.indexOf(letter)), 0n);
  const x = Buffer.from(number.toString(16).padStart(68, '0'), 'hex').subarray(2).toString('base64url');
  return { kty: 'OKP', crv: 'Ed25519', x };
};

const request = (messageId, params, configuration) => ({
  tenant: '', metadata: undefined, configuration,
  message: {
    messageId, contextId: '', taskId: '', role: Role.ROLE_USER, extensions: [], referenceTaskIds: [], metadata: undefined,
    parts: [{ content: { $case: 'data', value: { capability: skill, params } }, metadata: undefined, filename: '', mediaType: '' }],
  },
});

const card = await new DefaultAgentCardResolver().resolve(url);
await verifyAgentCardSignature(keyOf)(card);
const options = ClientFactoryOptions.createFrom(ClientFactoryOptions.default, { preferredTransports: [binding] });
const client = await new ClientFactory(options).createFromAgentCard(card);
const send = async (id, params, configuration) => Task.toJSON(await client.sendMessage(request(id, params, configuration)));

const [first, text] = [randomUUID(), `hello ${randomUUID()}`];
const told = { text, verified: true };
told.done = await send(first, { text });
told.again = await send(first, { text });
told.states = [];
for await (const update of client.sendMessageStream(request(first, { text }))) {
  const { task, statusUpdate } = StreamResponse.toJSON(update);
  told.joined = task ?? told.joined;
  told.states.push((task ?? statusUpdate)?.status.state);
}
told.wrong = await send(randomUUID(), { text: 7 });
told.failed = await send(randomUUID(), { text: 'fail' });
const configuration = { acceptedOutputModes: [], taskPushNotificationConfig: undefined, returnImmediately: true };
const slow = await send(randomUUID(), { text: 'slow' }, configuration);
const ask = () => client.getTask({ tenant: '', id: slow.id });
while ((await ask()).status.state === TaskState.TASK_STATE_SUBMITTED) await new Promise((go) => setTimeout(go, 50));
await client.cancelTask({ tenant: '', id: slow.id, metadata: undefined });
told.cancelled = Task.toJSON(await ask());
console.log(JSON.stringify(told));
