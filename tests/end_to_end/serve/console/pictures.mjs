// Writes pictures of every page and state of the console, at three widths and in both themes, for people to look at.
import { begin, ended, open, signIn, until } from "./browser.mjs";

/** The agent with schedules and webhooks, whose name is as long as a name can be. */
const LONG_NAME = "night-harbour-correspondence-and-tide-table-reporting-clerk1";

/** Returns the scenario. `pages` are closed and checked at the end. */
export function pictureScenarios({ browser, settings, pages }) {
  return {
    /** Settings: `widths`, `themes` and `only` (a part of a name) limit the pictures. */
    async screenshots() {
      for (const theme of settings.themes ?? ["light", "dark"]) {
        for (const width of settings.widths ?? [1440, 768, 390]) {
          const page = await open(browser, { url: settings.url, theme, width, height: width > 1000 ? 900 : 844 });
          pages.push(page);
          const picture = async (place) => {
            await page.waitForTimeout(250);
            await page.screenshot({ path: `${settings.folder}/${place}-${width}-${theme}.png` });
          };
          const show = async (path, ready) => {
            await page.goto("about:blank");
            await page.goto(`${settings.url}/console/#/${path}`);
            await page.locator(ready).first().waitFor();
          };
          const all = { signedOut, chat, waiting, lists, turns, plugins, agents, edges };
          for (const [name, part] of Object.entries(all)) {
            if (name === "signedOut" || !settings.only || settings.only.includes(name)) await part({ page, picture, show, settings });
          }
          await page.context().close();
        }
      }
    },
  };
}

/** Answers a request for the inbox as if nobody had been there for the questions about grants, and as if there were more. */
export async function deniedGrants(route) {
  const response = await route.fetch();
  const { items } = await response.json();
  const denied = items.filter(({ kind }) => kind === "first_use").map((item) => ({ ...item, kind: "denied_grants", expires: null }));
  await route.fulfill({ response, json: { items: denied, next: "1.1" } });
}

async function signedOut({ page, picture, settings }) {
  await page.getByLabel("Token", { exact: true }).waitFor();
  await picture("sign-in");
  await page.getByLabel("Token", { exact: true }).fill("aht_wrong");
  await page.getByRole("button", { name: "Sign in" }).click();
  await page.getByRole("alert").getByText(/does not exist/).waitFor();
  await picture("sign-in-error");
  await signIn(page, settings.token);
}

async function chat({ page, picture }) {
  await begin(page, "Show me everything.");
  await ended(page);
  await picture("session-end");
  await page.locator("details.tool summary").first().click();
  await page.locator(".budget summary").click();
  await page.locator(".scroll").evaluate((element) => { element.scrollTop = 0; });
  await picture("session-tool-and-budget");
  await page.getByRole("button", { name: "More", exact: true }).click();
  await picture("session-menu");
  await page.getByRole("menuitem", { name: "Undo the last turn" }).click();
  await page.getByRole("dialog").waitFor();
  await picture("dialog-undo");
  await page.getByRole("dialog").getByRole("button", { name: "Undo the turn" }).click();
  await page.getByText("Undone. The model no longer sees this message.").first().waitFor();
  await picture("session-undone-with-notice");
  await begin(page, "Talk.");
  await until(async () => (await page.locator(".live").innerText()).includes("word5"), "the reply has begun");
  await picture("streaming");
  await page.getByLabel("Prompt", { exact: true }).fill("And again, with a prompt that is long enough to need more than one line on a phone.");
  await page.getByRole("button", { name: "Queue" }).click();
  await page.locator(".queued").first().waitFor();
  await picture("streaming-queued");
  await page.getByRole("button", { name: "Stop" }).click();
  await page.getByText("The turn was stopped.").waitFor();
  await picture("stopped");
  await begin(page, "Fail.");
  await page.getByText("The turn failed.").waitFor();
  await picture("failed");
  await begin(page, "Write long words.");
  await ended(page);
  await page.locator(".scroll").evaluate((element) => { element.scrollTop = 0; });
  await picture("long-words");
  await page.locator(".link-host").scrollIntoViewIfNeeded();
  await picture("misleading-link");
  await page.getByLabel("Prompt", { exact: true }).fill("اكتب بالعربية.");
  await page.getByRole("button", { name: "Send" }).click();
  await page.locator(".messages").getByText("اقتباس").waitFor();
  await ended(page);
  await picture("right-to-left");
  await begin(page, "Look at this.");
  await ended(page);
  await page.locator("details.tool summary").first().click();
  await picture("hostile");
}

async function waiting({ page, picture, show }) {
  await begin(page, "Pay ann.");
  await page.locator(".decision").waitFor();
  await picture("approval");
  await page.getByRole("button", { name: "Allow for longer" }).click();
  await picture("approval-menu");
  await page.keyboard.press("Escape");
  await begin(page, "Ask me.");
  await page.locator(".decision").waitFor();
  await picture("question");
  await begin(page, "Count the lines.");
  await page.locator(".decision.first_use").waitFor();
  await picture("first-use");
  await show("inbox", "ah-inbox .decision >> nth=2");
  await picture("inbox");
  await page.route("**/api/inbox*", deniedGrants);
  await show("inbox", ".decision.denied_grants");
  await picture("inbox-denied-grants");
  await page.unroute("**/api/inbox*");
  await show("inbox", "ah-inbox .decision >> nth=2");
  const card = page.locator("ah-inbox .decision", { hasText: "payer.pay" }).first();
  await card.getByRole("button", { name: "Show changes" }).click();
  await card.getByText(/new file|changes no text files/).first().waitFor();
  await picture("inbox-changes");
  await card.getByRole("button", { name: "Edit" }).click();
  await card.getByLabel("Changed arguments, as JSON").fill("{\"to\": ");
  await picture("inbox-edit");
  await card.getByRole("button", { name: "Cancel" }).click();
  await card.getByRole("button", { name: "Deny" }).click();
  await picture("inbox-deny");
}

async function lists({ page, picture, show }) {
  await show("chat", ".session-list li");
  await picture("chat");
  await page.getByLabel("Search sessions and messages").fill("harbourmaster");
  await page.locator(".excerpt").first().waitFor();
  await picture("chat-search");
  await page.getByLabel("Search sessions and messages").fill("no such word at all");
  await page.getByText("Nothing found").waitFor();
  await picture("chat-search-nothing");
  await show("chat/new", ".new-session");
  await picture("chat-new");
  await show("about", "dl");
  await picture("about");
  await page.getByRole("button", { name: /^Account/ }).click();
  await picture("menu");
  await page.keyboard.press("Escape");
  await page.keyboard.press("Control+/");
  await page.getByRole("dialog").waitFor();
  await picture("shortcuts");
  await page.keyboard.press("Escape");
  await show("nothing", ".empty");
  await picture("unknown-page");
}

async function turns({ page, picture, show }) {
  const session = await begin(page, "Show me everything.");
  await ended(page);
  const turn = `turns/${encodeURIComponent(session)}/1/2`;
  await show("turns", ".link-list");
  await picture("turns");
  await show(turn, ".timeline");
  await picture("turn");
  await page.locator("main").evaluate((element) => { element.scrollTop = element.scrollHeight; });
  await picture("turn-overview");
  await page.getByRole("tab", { name: "Prompt" }).click();
  await page.locator(".prompt-block").first().waitFor();
  await page.locator("section.step").evaluate((element) => element.scrollIntoView());
  await picture("turn-prompt");
  await show(`turns/${encodeURIComponent(session)}/1/1`, ".timeline");
  await page.getByRole("tab", { name: /Calls/ }).click();
  await page.locator("section.step").evaluate((element) => element.scrollIntoView());
  await picture("turn-calls");
  await page.getByRole("button", { name: /^Replay with another/ }).click();
  await page.getByRole("dialog").getByLabel("Plugin").selectOption("probe");
  await picture("dialog-replay");
  await page.getByRole("dialog").getByRole("button", { name: "Replay", exact: true }).click();
  await page.getByRole("dialog").getByText(/recorded/).last().waitFor();
  await picture("dialog-replayed");
  await page.keyboard.press("Escape");
}

async function plugins({ page, picture, show }) {
  await show("plugins/everything", ".plugin-list");
  await picture("plugins");
  await page.route("**/api/agents/everything/plugins", (route) => route.fulfill({ json: { generation: "", plugins: [], counted_sessions: 0 } }));
  await show("plugins/everything", ".empty");
  await picture("plugins-none");
  await page.unroute("**/api/agents/everything/plugins");
  await show("plugins/everything/payer", ".access");
  await picture("plugin-access");
  await page.locator("main").evaluate((element) => { element.scrollTop = element.scrollHeight; });
  await picture("plugin-access-end");
  await show("plugins/everything/probe?part=tools", ".tool-form");
  const form = page.locator(".tool-form", { has: page.locator("summary", { hasText: "probe.echo" }) });
  await form.locator("summary").click();
  await form.scrollIntoViewIfNeeded();
  await form.getByRole("button", { name: "Call the tool" }).click();
  await form.getByLabel("text").fill("ahoy there");
  await form.getByRole("button", { name: "Call the tool" }).click();
  await form.getByRole("link", { name: "Show the turn" }).waitFor();
  await picture("plugin-tools");
  await show("plugins/everything/probe?part=versions", ".rows");
  await picture("plugin-versions");
  await show("plugins/everything/probe?part=use", ".fact-list.large, [role=tabpanel] .muted");
  await picture("plugin-resources");
}

async function agents({ page, picture, show }) {
  await show("agents", ".link-list");
  await picture("agents");
  await show(`agents/${LONG_NAME}`, ".rows");
  await picture("agent-overview");
  await show("agents/everything?part=configuration", ".editor");
  await picture("editor");
  const editor = page.locator("textarea.editor");
  const text = await editor.inputValue();
  await editor.fill(`modell = "x"\n${text}`);
  await page.getByRole("button", { name: /^Line 1/ }).waitFor();
  await picture("editor-error");
  await editor.fill(`${text}read = ["plugins"] # Only to look.\n`);
  await page.getByText("The text is valid and not saved yet.").first().waitFor();
  await page.getByRole("button", { name: "Review and save…" }).click();
  await page.locator("dialog tr.added").waitFor();
  await page.getByRole("dialog").getByRole("button", { name: "Save", exact: true }).click();
  await page.getByText("Confirm that the agent may have").waitFor();
  await picture("dialog-review");
  await page.keyboard.press("Escape");
  await page.getByRole("button", { name: "Discard changes" }).click();
}

/** Pages of a token without rights, a server that does not answer, and a server without sessions. */
async function edges({ page, picture, show, settings }) {
  await page.route("**/api/sessions?*", (route) => route.fulfill({ json: { sessions: [] } }));
  await show("chat", ".session-list .empty");
  await picture("chat-empty");
  await show("turns", ".empty");
  await picture("turns-empty");
  await page.unroute("**/api/sessions?*");
  await page.route("**/api/inbox*", (route) => route.fulfill({ json: { items: [] } }));
  await show("inbox", ".empty");
  await picture("inbox-empty");
  await page.unroute("**/api/inbox*");
  await page.route("**/api/agents", (route) => route.abort());
  await show("agents", ".empty");
  await picture("offline");
  await page.unroute("**/api/agents");
  if (!settings.reader) return;
  await show("about", "dl");
  const session = await begin(page, "Show me everything.");
  await ended(page);
  await page.getByRole("button", { name: /^Account/ }).click();
  await page.getByRole("menuitem", { name: "Sign out" }).click();
  await page.getByText("You are signed out.").waitFor();
  await picture("signed-out");
  await signIn(page, settings.reader);
  await show(`chat/${encodeURIComponent(session)}`, ".read-only");
  await picture("reader-session");
  await show("plugins/everything/payer", ".callout");
  await picture("reader-plugin");
  await show("agents/everything?part=configuration", ".callout");
  await picture("reader-editor");
  await show("chat/new", ".session-list li");
  await picture("reader-new");
}
