// A client that uses the official TypeScript SDK unchanged. It drives the agent whose program and arguments follow on the
// command line, and prints what it saw as one line of JSON.
import { spawn } from "node:child_process";
import { Readable, Writable } from "node:stream";
import { pathToFileURL } from "node:url";

const [sdk, folder, program, ...programArguments] = process.argv.slice(2);
const acp = await import(pathToFileURL(sdk));
const agent = spawn(program, programArguments, { stdio: ["pipe", "pipe", "inherit"], cwd: folder });
const stream = acp.ndJsonStream(Writable.toWeb(agent.stdin), Readable.toWeb(agent.stdout));
const seen = { text: {}, permissions: [], diffs: [], statuses: [], stops: [] };
let answers = [];

const client = acp
  .client({ name: "test-editor" })
  .onNotification(acp.methods.client.session.update, async ({ params }) => {
    const { sessionId, update } = params;
    if (update.sessionUpdate === "agent_message_chunk") {
      seen.text[sessionId] = (seen.text[sessionId] ?? "") + update.content.text;
    }
    if (update.sessionUpdate === "tool_call_update" && update.status) seen.statuses.push(update.status);
    for (const content of update.content?.filter?.((content) => content.type === "diff") ?? []) {
      seen.diffs.push([content.oldText ?? null, content.newText]);
    }
  })
  .onRequest(acp.methods.client.session.requestPermission, async ({ params }) => {
    seen.permissions.push(params.options.map((option) => option.kind));
    const answer = answers.shift();
    return { outcome: answer ? { outcome: "selected", optionId: answer } : { outcome: "cancelled" } };
  });

await client.connectWith(stream, async (context) => {
  const { agent: methods } = acp.methods;
  const initialized = await context.request(methods.initialize, {
    protocolVersion: acp.PROTOCOL_VERSION,
    clientCapabilities: {},
  });
  seen.version = initialized.protocolVersion;
  const created = async () =>
    (await context.request(methods.session.new, { cwd: folder, mcpServers: [] })).sessionId;
  const prompt = async (sessionId, text) => {
    const answer = await context.request(methods.session.prompt, { sessionId, prompt: [{ type: "text", text }] });
    seen.stops.push(answer.stopReason);
  };
  const [first, second] = [await created(), await created()];
  answers = ["allow_once", "reject", "allow_once"];
  await prompt(first, "Write, and write again.");
  await prompt(first, "Write, and ask again.");
  await Promise.all([prompt(first, "/session"), prompt(second, "/plugins")]);
  const slow = prompt(second, "Write.");
  await context.notify(methods.session.cancel, { sessionId: second });
  await slow;
  seen.listed = (await context.request(methods.session.list, {})).sessions.length;
  seen.text = {};
  await context.request(methods.session.load, { sessionId: first, cwd: folder, mcpServers: [] });
  seen.loaded = seen.text[first];
});
agent.stdin.end();
seen.exit = await new Promise((resolve) => (agent.exitCode === null ? agent.once("exit", resolve) : resolve(agent.exitCode)));
console.log(JSON.stringify(seen));
process.exit(0);
