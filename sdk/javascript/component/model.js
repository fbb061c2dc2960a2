// Asks the agent's model.

export { ask } from "agent-host:model/host-model@0.1.0";
