// The functions that the generated entry file of a component uses. This module must be evaluated before the plugin's own
// modules, because it replaces the global `Promise`.

export { run } from "./promise.js";
export { exportContextBuilder, exportMediaPolicy, exportOutputValidator, exportStepContext } from "../src/kinds.js";
export { exportTools } from "../src/tool.js";
