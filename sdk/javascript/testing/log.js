// Answers the SDK's module `log` in tests, from the state of the current `TestHost`.

import { state } from "./host.js";

export function log(level, message) {
  state().log.push({ level, message });
}
