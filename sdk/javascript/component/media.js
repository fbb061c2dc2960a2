// Reads and writes the media of the conversation.

export { Medium, NewMedium, open } from "agent-host:plugin/media-store@0.1.0";
