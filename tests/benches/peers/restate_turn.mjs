// Measures a durable turn in Restate: two model calls and one tool call in between, each a durable step (`ctx.run`) of one
// handler. The model is a function that answers immediately. The server runs on loopback with a new folder.
//
// Usage: restate_turn.mjs NODE_MODULES TURNS
import { spawn } from "node:child_process";
import { existsSync, mkdtempSync, readFileSync, rmSync } from "node:fs";
import { createServer } from "node:http2";
import { createRequire } from "node:module";
import { createServer as reserve } from "node:net";
import { tmpdir } from "node:os";
import { join } from "node:path";

const [modules, turns] = [process.argv[2], Number(process.argv[3])];
const installed = (name) => join(modules, "@restatedev", name, "package.json");
if (!existsSync(installed("restate-server")) || !existsSync(installed("restate-sdk"))) process.exit(77);
const version = (name) => JSON.parse(readFileSync(installed(name), "utf8")).version;
process.env.RESTATE_LOGGING = "ERROR";
const restate = createRequire(join(modules, "package.json"))("@restatedev/restate-sdk");

const agent = restate.service({
    name: "agent",
    handlers: {
        turn: async (ctx, question) => {
            const call = await ctx.run("model 1", () => ({ question, tool: "echo", text: "hello" }));
            const result = await ctx.run("tool", () => call.text);
            return await ctx.run("model 2", () => (result === "hello" ? "It has 42 lines." : "?"));
        },
    },
});

const freePort = () =>
    new Promise((resolve) => {
        const server = reserve().listen(0, "127.0.0.1", () => {
            const { port } = server.address();
            server.close(() => resolve(port));
        });
    });

const [service, ingress, admin, node] = [await freePort(), await freePort(), await freePort(), await freePort()];
createServer(restate.createEndpointHandler({ services: [agent] })).listen(service, "127.0.0.1");
const folder = mkdtempSync(join(tmpdir(), "restate-"));
const server = spawn(join(modules, ".bin", "restate-server"), ["--base-dir", folder, "--node-name", "bench"], {
    stdio: ["ignore", "ignore", "ignore"],
    detached: true,
    env: {
        ...process.env,
        RESTATE_INGRESS__BIND_ADDRESS: `127.0.0.1:${ingress}`,
        RESTATE_ADMIN__BIND_ADDRESS: `127.0.0.1:${admin}`,
        RESTATE_BIND_ADDRESS: `127.0.0.1:${node}`,
        RESTATE_ADVERTISED_ADDRESS: `http://127.0.0.1:${node}`,
        DO_NOT_TRACK: "1",
    },
});
const stop = () => {
    try {
        process.kill(-server.pid, "SIGKILL");
    } catch {
        // The server has ended already.
    }
    rmSync(folder, { recursive: true, force: true });
};

const request = async (url, body) => {
    const answer = await fetch(url, {
        method: "POST",
        headers: { "content-type": "application/json" },
        body: JSON.stringify(body),
    });
    if (!answer.ok) throw new Error(`${answer.status} ${await answer.text()}`);
    return answer.json();
};

const eventually = async (attempt) => {
    const until = Date.now() + 60_000;
    for (;;) {
        try {
            return await attempt();
        } catch (error) {
            if (Date.now() > until) throw error;
            await new Promise((resolve) => setTimeout(resolve, 200));
        }
    }
};

process.on("exit", stop);
try {
    await eventually(() => request(`http://127.0.0.1:${admin}/deployments`, { uri: `http://127.0.0.1:${service}` }));
    const turn = () => request(`http://127.0.0.1:${ingress}/agent/turn`, "How many lines has notes.txt?");
    await eventually(turn);
    console.log(`restate-server ${version("restate-server")}, restate-sdk ${version("restate-sdk")}`);
    for (let number = 0; number < turns / 10 + turns; number++) {
        const begun = performance.now();
        const answer = await turn();
        const elapsed = performance.now() - begun;
        if (answer !== "It has 42 lines.") throw new Error(`wrong answer: ${answer}`);
        if (number >= turns / 10) console.log(Math.round(elapsed * 1000));
    }
} finally {
    stop();
}
process.exit(0);
