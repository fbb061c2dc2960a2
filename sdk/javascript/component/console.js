// `console` writes to the plugin's log.

import * as log from "../src/log.js";

export const console = {
  trace: log.trace,
  debug: log.debug,
  log: log.info,
  info: log.info,
  warn: log.warn,
  error: log.error,
};
