// Stored values: a list of tasks that is kept between calls. Each task has its own key, so that calls at the same time
// do not overwrite each other's changes.

import { ToolError, array, integer, object, string, tool, values } from "agent-host-sdk";

// Returns the key of a task. The zeros keep the keys in the order of the numbers.
const keyOf = (number) => `task-${String(number).padStart(6, "0")}`;

const add = tool(
  {
    name: "todo.add",
    description: "Adds a task to the list, and returns its number.",
    arguments: { task: string({ minLength: 1 }).describe("The task, in one line.") },
    result: object({ number: integer().describe("The number of the task.") }),
  },
  ({ task }) => {
    // No two calls get the same number, even if they run at the same time.
    const number = values.increment("count");
    values.set(keyOf(number), task);
    return { number };
  },
);

const task = object({
  number: integer().describe("The number of the task."),
  task: string().describe("The task."),
});

const list = tool(
  {
    name: "todo.list",
    description: "Lists the tasks that are not done.",
    result: object({ tasks: array(task).describe("The tasks that are not done, oldest first.") }),
    readOnly: true,
  },
  () => {
    const keys = values.keys().filter((key) => key.startsWith("task-"));
    return { tasks: keys.map((key) => ({ number: Number(key.slice("task-".length)), task: values.get(key) })) };
  },
);

const done = tool(
  {
    name: "todo.done",
    description: "Removes a task that is done from the list.",
    arguments: { number: integer({ minimum: 1 }).describe("The number of the task.") },
  },
  ({ number }) => {
    const task = values.get(keyOf(number));
    if (task === undefined) throw ToolError.notFound(`there is no task ${number}`);
    values.delete(keyOf(number));
    return `Done: ${task}`;
  },
);

export const tools = [add, list, done];
