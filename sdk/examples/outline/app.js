// Reading granted files. The functions of `files` throw errors that help the model, so the tools do not handle them.

import { array, files, integer, object, string, tool } from "agent-host-sdk";

const listFiles = tool(
  {
    name: "outline.files",
    description: "Lists the Markdown files in a folder.",
    arguments: { folder: string().describe("The path of the folder.") },
    result: object({ files: array(string()).describe("The paths of the files.") }),
    readOnly: true,
  },
  ({ folder }) => {
    const found = files.list(folder).filter(({ name, isFolder }) => !isFolder && name.endsWith(".md"));
    return { files: found.map(({ name }) => `${folder}/${name}`) };
  },
);

const heading = object({
  level: integer().describe("The level of the heading, from 1 to 6."),
  text: string().describe("The text of the heading."),
});

const headings = tool(
  {
    name: "outline.headings",
    description: "Returns the headings of a Markdown file. Use it before you read a long file.",
    arguments: { path: string().describe("The path of the file.") },
    result: object({ headings: array(heading).describe("The headings in the order of the file.") }),
    readOnly: true,
  },
  ({ path }) => {
    const found = files.readText(path).matchAll(/^(#{1,6}) (.*)$/gm);
    return { headings: [...found].map(([, marks, text]) => ({ level: marks.length, text: text.trim() })) };
  },
);

export const tools = [listFiles, headings];
