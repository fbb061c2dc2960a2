// Writing and removing granted files. The traits of a tool tell the host what it does to the world, so that the host
// can ask the user before a call.

import { files, string, tool } from "agent-host-sdk";

// Folder of the drafts, which the agent grants.
const FOLDER = "drafts";

const draftName = string({ pattern: "^[a-z0-9-]+$" }).describe("The name of the draft, in lower case.");

const save = tool(
  {
    name: "drafts.save",
    description: "Saves a draft, and replaces an earlier draft with this name.",
    arguments: { name: draftName, text: string().describe("The text in Markdown.") },
    // The tool may overwrite a draft. A second call with the same arguments has no further effect.
    destructive: true,
    idempotent: true,
  },
  ({ name, text }) => {
    const isNew = files.list(FOLDER).every((entry) => entry.name !== `${name}.md`);
    files.write(`${FOLDER}/${name}.md`, text);
    return `${isNew ? "saved" : "replaced"} ${FOLDER}/${name}.md`;
  },
);

const discard = tool(
  {
    name: "drafts.discard",
    description: "Removes a draft for good.",
    arguments: { name: draftName },
    destructive: true,
    // Each call waits for the approval of the user.
    needsApproval: true,
  },
  ({ name }) => {
    files.remove(`${FOLDER}/${name}.md`);
    return `discarded ${FOLDER}/${name}.md`;
  },
);

export const tools = [save, discard];
