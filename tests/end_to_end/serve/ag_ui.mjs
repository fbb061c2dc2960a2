// Runs an agent with the official AG-UI client: a message, an approval, and another message. Prints the conversation that
// the client has built. Arguments: the address of the agent, and a token.
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
console.log(JSON.stringify(agent.messages));
