// Checks the types of the SDK: the TypeScript compiler must accept this file. Nothing runs it.

import { Done, array, boolean, http, integer, object, oneOf, string, tool, type OutputValidator, accept, reject, values, literal } from "agent-host-sdk";
import { TestHost } from "agent-host-sdk/testing";
type Equal<A, B> = (<T>() => T extends A ? 1 : 2) extends <T>() => T extends B ? 1 : 2 ? true : false;
const same = <A, B>(..._: Equal<A, B> extends true ? [] : ["different", A, B]) => {};
export const tools = [
  tool({ name: "a.b", description: "", arguments: {
    text: string(), n: integer().default(1), o: boolean().optional(), unit: oneOf("mm", "inch"), list: array(object({ x: integer().nullable() })), v: oneOf(string(), 5),
  } }, async (args, call) => {
    same<typeof args, { text: string; n: number; unit: "mm" | "inch"; list: { x: number | null }[]; v: string | 5; o?: boolean }>();
    const r = await http.get("https://x", { query: { a: 1 } });
    call.scope.user?.length;
    values.update<number>("a", (v) => (v ?? 0) + 1);
    values.delete("a");
    await http.delete("https://x");
    return Done.text(args.text).andJson(r.json());
  }),
  tool({ name: "c", description: "" }, (args) => { same<typeof args, {}>(); return "x"; }),
  tool({ name: "c", description: "", arguments: { type: "object", properties: { a: { type: "string" } } } }, (args) => { args.anything; }),
  tool({ name: "d", description: "", arguments: object({ a: literal(3) }) }, (args) => { same<typeof args, { a: 3 }>(); }),
  // @ts-expect-error: there is no such trait
  tool({ name: "e", description: "", readonly: true }, () => {}),
  // @ts-expect-error: there is no such argument
  tool({ name: "f", description: "", arguments: { a: string() } }, ({ b }) => b),
];
export const outputValidator: OutputValidator = ({ text, json }) => (json ? accept() : reject(text));
// @ts-expect-error: the kind is wrong
export const wrong: OutputValidator = () => ({ tag: "maybe" });
const host = new TestHost().http("GET https://x", { json: 1 }).config("a", "b");
host.call(tools, "a.b", { text: "x" }).then((o) => o.value);
