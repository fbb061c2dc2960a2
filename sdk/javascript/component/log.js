// Writes log lines through `wasi:logging`.

import { log as write } from "wasi:logging/logging";

export function log(level, message) {
  write(level, "", message);
}
