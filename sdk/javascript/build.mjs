// Builds the component of a plugin: bundles the plugin with the SDK, writes the WIT world that the bundle needs, and
// calls jco. `agent-host plugin build` runs this file in the project's folder:
//
//     node build.mjs --jco FILE --source FILE --build FOLDER [--wit FOLDER --world NAME]
//
// `--wit` and `--world` select a world of the project instead of the generated one.

import { spawnSync } from "node:child_process";
import fs from "node:fs";
import { createRequire } from "node:module";
import path from "node:path";
import { fileURLToPath, pathToFileURL } from "node:url";
import { parseArgs } from "node:util";
import { lineTable, positionsCode, replacePositions } from "./source_map.mjs";
import { restoreNames, toPlaceholders } from "./wasi_names.mjs";

const SDK = path.dirname(fileURLToPath(import.meta.url));
/** The file that contains the plugin, the SDK and all other modules. */
const BUNDLE = "plugin.js";
/** Identifies the generated entry file. */
const ENTRY = "\0entry";
/** An import of a WIT interface, such as `wasi:http/types@0.2.0`. */
const WIT_IMPORT = /^[a-z][a-z0-9-]*:[a-z][a-z0-9-]*\/[a-z]/;

/** What a plugin's source file can export, the interface of the contract, and the function that implements it. */
const KINDS = [
  { name: "tools", interface: "tool", implement: "exportTools" },
  { name: "contextBuilder", interface: "context-builder", implement: "exportContextBuilder" },
  { name: "stepContext", interface: "step-context", implement: "exportStepContext" },
  { name: "outputValidator", interface: "output-validator", implement: "exportOutputValidator" },
  { name: "mediaPolicy", interface: "media-policy", implement: "exportMediaPolicy" },
];

/** Warnings that are not shown: about syntax that QuickJS understands, and about imports that are reported as an error. */
const QUIET = ["TOLERATED_TRANSFORM", "UNRESOLVED_IMPORT"];

/** Globals of browsers and Node.js that QuickJS does not have. The bundle contains only those that are used. */
const GLOBALS = {
  console: "console.js",
  TextEncoder: "encoding.js",
  TextDecoder: "encoding.js",
  setTimeout: "timers.js",
  clearTimeout: "timers.js",
};

try {
  await main();
} catch (error) {
  // The message of the bundler contains the place in the source.
  process.stderr.write(`${error.message}\n`);
  process.exitCode = 1;
}

async function main() {
  const text = { type: "string" };
  const options = { jco: text, source: text, build: text, wit: text, world: text };
  const { jco, source, world, ...folders } = parseArgs({ options }).values;
  const build = path.resolve(folders.build);
  const wit = folders.wit && path.resolve(folders.wit);
  const rolldown = await loadRolldown(jco);
  const entry = path.resolve(source);
  const names = (await bundle(rolldown, entry, build)).exports;
  const kinds = KINDS.filter(({ name }) => names.includes(name));
  if (kinds.length === 0) {
    const expected = KINDS.map(({ name }) => `\`${name}\``).join(", ");
    throw new Error(`${source} exports no plugin: export at least one of ${expected}, for example \`export const tools = […]\``);
  }
  const chunk = await bundle(rolldown, ENTRY, build, entryText(entry, kinds));
  fs.mkdirSync(build, { recursive: true });
  checkImports(source, chunk.imports);
  const table = lineTable(chunk, { build, sdk: SDK });
  const code = chunk.code + positionsCode(table);
  const target = wit === undefined ? writeWorld(build, kinds, chunk.imports) : { wit, world };
  fs.writeFileSync(path.join(build, BUNDLE), wit === undefined ? toPlaceholders(code) : code);
  const errors = componentize(jco, build, target);
  process.stderr.write(replacePositions(errors, table));
}

/** All imports that are left in the bundle must be interfaces of the host. */
function checkImports(source, imports) {
  const other = imports.find((name) => !isWit(name));
  if (other === undefined) return;
  throw new Error(
    `${source}, or a package that it imports, imports \`${other}\`, which a plugin does not have: plugins can use ECMAScript, ` +
      "npm packages that need nothing else, and the functions of `agent-host-sdk`",
  );
}

function isWit(name) {
  return WIT_IMPORT.test(name) && !name.startsWith("node:");
}

/** Loads the bundler, which jco depends on. */
async function loadRolldown(jco) {
  const places = [fs.realpathSync(jco), path.resolve("package.json")];
  for (const place of places) {
    try {
      const require = createRequire(place);
      const found = tryResolve(require, "rolldown") ?? tryResolve(createRequire(require.resolve("@bytecodealliance/jco")), "rolldown");
      if (found !== undefined) return (await import(pathToFileURL(found))).rolldown;
    } catch {
      // The next place may have it.
    }
  }
  throw new Error("the bundler `rolldown`, which is installed with jco, was not found: run `npm install` in the project");
}

function tryResolve(require, name) {
  try {
    return require.resolve(name);
  } catch {
    return undefined;
  }
}

/** Bundles an entry file with all modules that it imports, and returns the bundle. */
async function bundle(rolldown, input, build, text) {
  const warnings = [];
  const bundler = await rolldown({
    input,
    platform: "neutral",
    external: isWit,
    plugins: [entryPlugin(text), sdkPlugin()],
    resolve: { conditionNames: ["agent-host", "import", "default"], mainFields: ["module", "main"] },
    // An unused import of an interface is not a reason to import the interface.
    treeshake: { moduleSideEffects: (id, isExternal) => !isExternal && !isWithoutSideEffects(id) },
    transform: {
      // QuickJS cannot wait for native promises within a call, so async functions become generators.
      target: "es2016",
      // Many packages ask whether they run in production, although they use nothing else of Node.js.
      define: { "process.env.NODE_ENV": '"production"' },
      inject: Object.fromEntries(
        Object.entries(GLOBALS).map(([name, file]) => [name, [path.join(SDK, "component", file), name]]),
      ),
    },
    onLog: (level, log) => level === "warn" && !QUIET.includes(log.code) && warnings.push(log.message),
  });
  try {
    const { output } = await bundler.generate({ format: "esm", codeSplitting: false, sourcemap: true, dir: build, entryFileNames: BUNDLE });
    if (text !== undefined) warnings.forEach((warning) => process.stderr.write(`${warning}\n`));
    return output.find(({ type }) => type === "chunk");
  } finally {
    await bundler.close();
  }
}

/** The modules of the SDK have no side effects, except the one that replaces `Promise`. */
function isWithoutSideEffects(id) {
  return id.startsWith(SDK + path.sep) && !id.endsWith(`${path.sep}promise.js`);
}

/** Provides the generated entry file. */
function entryPlugin(text) {
  return {
    name: "entry",
    resolveId: (id) => (id === ENTRY ? id : undefined),
    load: (id) => (id === ENTRY ? text : undefined),
  };
}

/** Finds the SDK in this folder, so that a build does not depend on a link in `node_modules`. */
function sdkPlugin() {
  const files = { "agent-host-sdk": "src/index.js", "agent-host-sdk/component": "component/exports.js" };
  return {
    name: "sdk",
    resolveId: (id) => (Object.hasOwn(files, id) ? path.join(SDK, files[id]) : undefined),
  };
}

/** The entry file exports each interface of the contract as one object. */
function entryText(entry, kinds) {
  const functions = kinds.map(({ implement }) => implement).join(", ");
  const names = kinds.map(({ name }) => name).join(", ");
  const exports = kinds.map(({ name, interface: key, implement }) => {
    const exported = key.replace(/-./g, ([, letter]) => letter.toUpperCase());
    return `const ${exported}Interface = ${implement}(${name}, run);\nexport { ${exported}Interface as ${exported} };`;
  });
  return [
    `import { run, ${functions} } from "agent-host-sdk/component";`,
    `import { ${names} } from ${JSON.stringify(entry)};`,
    ...exports,
    "",
  ].join("\n");
}

/** Writes a world with the interfaces that the bundle exports and imports. Returns the folder and the world. */
function writeWorld(build, kinds, imports) {
  const wit = path.join(build, "wit");
  fs.rmSync(wit, { recursive: true, force: true });
  for (const file of fs.readdirSync(path.join(SDK, "wit"), { recursive: true }).filter((name) => name.endsWith(".wit"))) {
    const target = path.join(wit, "deps", file);
    fs.mkdirSync(path.dirname(target), { recursive: true });
    fs.writeFileSync(target, toPlaceholders(fs.readFileSync(path.join(SDK, "wit", file), "utf8")));
  }
  const lines = [
    ...[...new Set(imports)].sort().map((name) => `  import ${name};`),
    ...kinds.map(({ interface: key }) => `  export agent-host:plugin/${key}@0.1.0;`),
  ];
  const text = `package author:project;\n\n/// Generated from the imports and exports of the source.\nworld plugin {\n${lines.join("\n")}\n}\n`;
  fs.writeFileSync(path.join(wit, "world.wit"), toPlaceholders(text));
  return { wit, world: "plugin" };
}

/** Calls jco, and returns what it printed to standard error. */
function componentize(jco, build, { wit, world }) {
  const output = path.join(build, "component.wasm");
  const args = ["componentize", path.join(build, BUNDLE), "--wit", wit, "-n", world, "--backend", "qjs", "-o", output];
  const isScript = /\.[cm]?js$/.test(fs.realpathSync(jco));
  const command = isScript ? [process.execPath, jco, ...args] : [jco, ...args];
  const { status, error, stderr } = spawnSync(command[0], command.slice(1), { stdio: ["ignore", "inherit", "pipe"] });
  if (error) throw error;
  process.exitCode = status ?? 1;
  if (status === 0) fs.writeFileSync(output, restoreNames(fs.readFileSync(output)));
  return stderr.toString();
}
