// Runs an agent with the official AG-UI client: a message, an approval, another message, and a tool of the front end. Prints
// the conversation that the client has built. Arguments: the address of the agent, and a token.
import { createRequire } from "node:module";

const require = createRequire(`${process.cwd()}/`);
const { HttpAgent } = require("@ag-ui/client");
const [url, token] = process.argv.slice(2);
const agent = new HttpAgent({ url, threadId: "official", headers: { Authorization: `Bearer ${token}` } });

let interrupts = [];
const subscriber = {
  onRunErrorEvent: ({ event }) => { throw new Error(event.message); },
  onRunFinishedEvent: ({ event }) => { interrupts = event.outcome?.interrupts ?? []; },
};
agent.messages = [{ id: "1", role: "user", content: "Pay ann." }];
await agent.runAgent({ runId: "run-1" }, subscriber);
if (interrupts.length !== 1) throw new Error(`${interrupts.length} interrupts`);
const resume = [{ interruptId: interrupts[0].id, status: "resolved", payload: { approved: true } }];
await agent.runAgent({ runId: "run-2", resume }, subscriber);
agent.messages = [...agent.messages, { id: "2", role: "user", content: "Thanks." }];
await agent.runAgent({ runId: "run-3" }, subscriber);
// A tool of the front end: the run ends with its call, and the next run brings the result.
const tools = [{ name: "show_map", description: "Shows a map.", parameters: { type: "object", properties: {} } }];
agent.messages = [...agent.messages, { id: "3", role: "user", content: "Show me pier 3." }];
await agent.runAgent({ runId: "run-4", tools }, subscriber);
const calls = agent.messages.at(-1).toolCalls ?? [];
if (calls.length !== 1) throw new Error(`${calls.length} calls`);
const { place } = JSON.parse(calls[0].function.arguments);
agent.messages = [...agent.messages, { id: "4", role: "tool", toolCallId: calls[0].id, content: `${place} is shown` }];
await agent.runAgent({ runId: "run-5", tools }, subscriber);
console.log(JSON.stringify(agent.messages));
