// Answers the SDK's module `config` in tests, from the state of the current `TestHost`.

import { state } from "./host.js";

export const get = (key) => state().config.get(key);
export const getAll = () => [...state().config];
