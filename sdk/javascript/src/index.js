// The SDK for plugins in JavaScript and TypeScript.

export { ToolError, Failure } from "./errors.js";
export { Done, ServiceRequest, pending } from "./outcome.js";
export { Schema, any, array, boolean, integer, literal, number, object, oneOf, record, string } from "./schema.js";
export { Tool, tool } from "./tool.js";
export {
  accept,
  acceptJson,
  acceptText,
  downscale,
  dynamic,
  fixed,
  keep,
  mask,
  reject,
  rejectAll,
  textOf,
} from "./kinds.js";
export { HttpError } from "./http.js";
export * as config from "./config.js";
export * as files from "./files.js";
export * as http from "./http.js";
export * as log from "./log.js";
export * as media from "./media.js";
export * as model from "./model.js";
export * as values from "./values.js";
