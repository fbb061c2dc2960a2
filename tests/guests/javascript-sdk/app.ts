// A plugin that uses each function of the SDK. Each tool uses one module of the SDK.

import {
  Done,
  Failure,
  ToolError,
  accept,
  config,
  files,
  http,
  integer,
  log,
  media,
  model,
  oneOf,
  reject,
  string,
  tool,
  values,
  type OutputValidator,
} from "agent-host-sdk";
import { asyncResults, fail } from "./other.js";

const API = "https://api.example.com/v1";

export const tools = [
  tool({ name: "sdk.http", description: "Sends two requests at the same time.", readOnly: true }, async () => {
    const [first, second] = await Promise.all([
      http.get(`${API}/slow`, { query: { q: "x y" }, headers: { accept: "application/json" } }),
      http.post(`${API}/echo`, { text: "é" }),
    ]);
    return { first: first.json(), second: second.text(), header: second.headers["x-one"], status: second.status };
  }),
  tool(
    { name: "sdk.status", description: "Requires success.", arguments: { path: string() }, readOnly: true },
    async ({ path }) => (await http.get(`${API}/${path}`, { atMost: 10 })).expectOk().text(),
  ),
  tool({ name: "sdk.values", description: "Stores values." }, () => {
    values.set("a", { list: [1] });
    values.increment("n", 2);
    values.update<{ list: number[] }>("a", (value) => ({ list: [...(value?.list ?? []), 2] }));
    const other = values.open("other");
    other.setBytes("raw", new Uint8Array([0, 255]));
    const found = { a: values.get("a"), n: values.increment("n"), keys: values.keys(), raw: [...other.getBytes("raw")!] };
    values.delete("a");
    return { ...found, after: values.keys(), missing: values.get("a") === undefined };
  }),
  tool({ name: "sdk.files", description: "Reads and writes files." }, () => {
    files.write("data/new.txt", `${files.readText("data/in.txt").trim()} é`);
    files.createFolder("data/folder");
    const list = files.list("data");
    files.remove("data/folder");
    const errors = ["data/none", "/etc/passwd", "data/../../x"].map((path) => {
      try {
        return files.readText(path);
      } catch (error) {
        return (error as ToolError).kind;
      }
    });
    return { trees: files.trees(), list, errors, text: files.readText("data/new.txt") };
  }),
  tool({ name: "sdk.media", description: "Makes media.", arguments: { of: string() } }, ({ of }) => {
    const item = media.create(new TextEncoder().encode(of), "text/plain", "made.txt");
    const copy = new TextDecoder().decode(media.open(item.digest).readAll(100));
    return Done.text(copy).andStored(item.digest).andMedia(new Uint8Array([1, 2, 3]), "application/octet-stream");
  }),
  tool({ name: "sdk.model", description: "Asks the model." }, async () => {
    const answer = await model.ask({ system: "Calculate.", text: "2 + 2?", maxTokens: 50 });
    return `${answer.text} (${answer.ending})`;
  }),
  tool({ name: "sdk.config", description: "Reads settings.", readOnly: true }, (_, { scope }) => {
    log.info("the greeting is read", { for: scope.user });
    console.warn("a line of the console");
    return { greeting: config.get("greeting"), all: config.getAll(), user: scope.user };
  }),
  tool({ name: "sdk.wait", description: "Waits for timers and promises.", readOnly: true }, async () => {
    const start = Date.now();
    await new Promise((resolve) => setTimeout(resolve, 20));
    return { waited: Date.now() - start >= 19, ...(await asyncResults()) };
  }),
  tool(
    {
      name: "sdk.fail",
      description: "Fails.",
      arguments: { how: oneOf("exception", "never", "invalid", "text"), depth: integer().default(2) },
      readOnly: true,
    },
    async ({ how, depth }) => {
      if (how === "never") await new Promise(() => {});
      if (how === "invalid") throw ToolError.invalid("/how", "is not how it is done");
      if (how === "text") throw "only a text";
      await fail(depth);
    },
  ),
];

export const outputValidator: OutputValidator = async ({ text }) => {
  await null;
  if (text.includes("broken")) throw Failure.invalidInput("the answer is broken");
  return text.includes("TODO") ? reject("There is a TODO.") : accept();
};
