// Uses the web console as people do, in a real browser. Arguments: the name of a scenario, and its settings as JSON.
import { createRequire } from "node:module";
import { appendFileSync, readFileSync } from "node:fs";
import { begin, check, choose, ended, enter, launch, open, signIn, until } from "./browser.mjs";
import { builderScenarios } from "./builder_pages.mjs";
import { newUserScenarios } from "./new_user.mjs";
import { deniedGrants, pictureScenarios } from "./pictures.mjs";

const require = createRequire(`${process.cwd()}/`);
const [name, json] = process.argv.slice(2);
const settings = JSON.parse(json);
const browser = await launch(settings);
const pages = [];

async function start(options) {
  const page = await enter(browser, settings, options);
  pages.push(page);
  return page;
}

const scenarios = {
  /** A turn with thinking, a streamed reply, a tool, a table and code. */
  async whole_turn() {
    const page = await start();
    await begin(page, "Show me everything.");
    const live = page.locator(".live-message");
    const partial = await until(async () => (await live.isVisible().catch(() => false)) && (await live.innerText().catch(() => "")), "text appears while it is written");
    check(!partial.includes("The end."), "the reply is shown before it is complete");
    await ended(page);
    const reply = page.getByRole("article", { name: /^Reply/ }).last();
    check((await reply.locator("table th").allInnerTexts()).join() === "Pier,Depth", "the table has a head");
    check(await reply.locator(".code .hl-keyword").count() > 0, "the code is highlighted");
    await reply.getByRole("button", { name: "Copy the code" }).click();
    check((await page.evaluate(() => navigator.clipboard.readText())).includes("fn main()"), "the code is copied");
    const tool = page.locator("details.tool").first();
    check(!(await tool.evaluate((card) => card.open)), "tools are folded");
    await tool.locator("summary").click();
    await shows(tool, ["probe.echo", "ahoy", "Time"], "the card shows arguments, result and cost");
    const thinking = page.locator("details.thinking").first();
    check(!(await thinking.evaluate((folded) => folded.open)), "thinking is folded");
    await thinking.locator("summary").click();
    await shows(thinking, ["Now I write."], "the thinking is shown");
    check(/\d+ % of/.test(await page.locator(".budget summary").innerText()), "the bar shows how full the window is");
    // Search finds the message, and a copy of the session contains it.
    await page.keyboard.press("Control+k");
    await page.keyboard.type("harbourmaster");
    await page.locator(".sessions .excerpt").first().waitFor();
    const original = page.url();
    await page.getByRole("button", { name: "More", exact: true }).click();
    await page.getByRole("menuitem", { name: "Fork the session" }).click();
    await page.waitForURL((url) => url.href !== original);
    await page.getByRole("article", { name: /^Reply/ }).last().waitFor();
    const download = page.waitForEvent("download");
    await page.getByRole("button", { name: "More", exact: true }).click();
    await page.getByRole("menuitem", { name: "Export" }).click();
    const exported = JSON.parse(readFileSync(await (await download).path(), "utf8"));
    check(exported.format && JSON.stringify(exported).includes("harbourmaster"), "the document contains the session");
    // Undo hides the turn from the model, and the page says so.
    await page.goto(original);
    await ended(page);
    await page.getByRole("button", { name: "More", exact: true }).click();
    await page.getByRole("menuitem", { name: "Undo the last turn" }).click();
    await page.getByRole("dialog").getByRole("button", { name: "Undo the turn" }).click();
    await page.getByText("Undone. The model no longer sees this message.").first().waitFor();
  },

  /** An approval in the inbox, whose arguments are changed before the call runs. */
  async edited_approval() {
    const page = await start();
    await begin(page, "Pay ann.");
    await page.locator(".decision").waitFor();
    await page.getByRole("link", { name: /^Inbox/ }).click();
    const card = page.locator("ah-inbox .decision");
    await card.waitFor();
    const shown = await card.innerText();
    check(shown.includes("payer.pay") && shown.includes("ann") && shown.includes("sha256:"), `the card shows the call and its digest: ${shown}`);
    await card.getByRole("button", { name: "Edit" }).click();
    const field = card.getByLabel("Changed arguments, as JSON");
    await field.fill("{\"to\": \"bob\", ");
    check(await card.getByRole("button", { name: "Allow with these arguments" }).isDisabled(), "text that is not JSON cannot be sent");
    await field.fill("{\"to\": \"bob\", \"amount\": 7}");
    await card.getByRole("button", { name: "Allow with these arguments" }).click();
    await page.getByText("Nothing waits for you").waitFor();
    await page.goBack();
    await ended(page);
    const tool = page.locator("details.tool").first();
    check((await tool.innerText()).includes("changed by a person"), "the card says that the arguments were changed");
  },

  /** A question of the model, answered in the conversation. */
  async question() {
    const page = await start();
    await begin(page, "Ask me.");
    const card = page.locator(".decision.question");
    await card.waitFor();
    check((await card.innerText()).includes("Which pier?"), "the question is shown");
    await card.getByLabel("Your answer").fill("Pier 3");
    await page.keyboard.press("Enter");
    await ended(page);
    check((await page.locator("div.messages").innerText()).includes("Pier 3 it is."), "the turn continued with the answer");
  },

  /** A key that is held decides about one card only, although the focus moves to the next one. */
  async held_key() {
    const page = await start();
    for (let number = 0; number < 2; number += 1) {
      await begin(page, "Pay ann.");
      await page.locator(".decision").waitFor();
    }
    await page.getByRole("link", { name: /^Inbox/ }).click();
    const cards = page.locator("ah-inbox .decision");
    await cards.nth(1).waitFor();
    await cards.first().focus();
    for (let number = 0; number < 20; number += 1) {
      await page.keyboard.down("a");
      await page.waitForTimeout(50);
    }
    await page.keyboard.up("a");
    await until(async () => (await cards.count()) === 1, "one card was decided");
    await page.keyboard.press("a");
    await page.getByText("Nothing waits for you").waitFor();
  },

  /** A plugin lacks a grant: once it is given for a session in the conversation, and once for good in the inbox. */
  async first_use() {
    const page = await start();
    await begin(page, "Count the lines.");
    const card = page.locator(".decision.first_use");
    await card.waitFor();
    const shown = await card.innerText();
    check(shown.includes("text.count_file") && shown.includes("read = [") && shown.includes("sha256:"), `the card shows the grant, its line and the plugin: ${shown}`);
    await card.getByRole("button", { name: "Allow in this session" }).click();
    await ended(page);
    await page.locator("details.tool summary").first().click();
    await shows(page.locator("details.tool").first(), ["1 line"], "the call ran with the grant");
    await begin(page, "Count the lines.");
    await page.locator(".decision.first_use").waitFor();
    await page.getByRole("link", { name: /^Inbox/ }).click();
    const waiting = page.locator("ah-inbox .decision.first_use");
    await waiting.waitFor();
    await waiting.getByRole("button", { name: "Always" }).click();
    await page.getByText("They are in the agent's file.").first().waitFor();
    await page.getByText("Nothing waits for you").waitFor();
    await page.goBack();
    await ended(page);
  },

  /** A plugin runs without its grants while nobody looks, and a person then sees what to add. An answer that cannot be kept says why. */
  async denied_grants() {
    const headers = { authorization: `Bearer ${settings.token}`, "content-type": "application/json" };
    const call = async (path, body) => (await fetch(`${settings.url}${path}`, { headers, method: body ? "POST" : "GET", body: body && JSON.stringify(body) })).json();
    await call("/api/sessions", { agent: "counter", prompt: "Count the lines." });
    await until(async () => (await call("/api/inbox")).items.some((item) => item.kind === "denied_grants"), "the plugin ran without the grants");
    const page = await start();
    await page.goto(`${settings.url}/console/#/inbox`);
    const card = page.locator(".decision.denied_grants");
    await card.waitFor();
    const shown = await card.innerText();
    check(/Ran without grants/.test(shown) && shown.includes("read = ["), `the card shows what to add: ${shown}`);
    await card.getByRole("link", { name: "Add it to the configuration…" }).click();
    await until(async () => /\[plugins\.text\.grants\]\nread = \[/.test(await page.locator("textarea.editor").inputValue().catch(() => "")), "the editor has the line");
    await page.getByRole("button", { name: "Discard changes" }).click();
    await page.getByRole("link", { name: /^Inbox/ }).click();
    await card.getByRole("button", { name: "Dismiss" }).click();
    await page.getByText("Nothing waits for you").waitFor();
    // Somebody changes the file while a question waits.
    await begin(page, "Count the lines.");
    const asked = page.locator(".decision.first_use");
    await asked.waitFor();
    appendFileSync(`${settings.folder}/counter.toml`, "# A remark.\n");
    await asked.getByRole("button", { name: "Always" }).click();
    await page.locator(".notice.bad").getByText("it is not in the agent's file").waitFor();
    await ended(page);
  },

  /** A picture from the clipboard. */
  async pasted_image() {
    const page = await start();
    await page.goto(`${settings.url}/console/#/chat/new`);
    await choose(page, "What is this?");
    const field = page.getByLabel("Prompt", { exact: true });
    await field.evaluate((element, data) => {
      const bytes = Uint8Array.from(atob(data), (letter) => letter.charCodeAt(0));
      const transfer = new DataTransfer();
      transfer.items.add(new File([bytes], "plan.png", { type: "image/png" }));
      element.dispatchEvent(new ClipboardEvent("paste", { clipboardData: transfer, bubbles: true, cancelable: true }));
    }, settings.picture);
    await page.getByRole("list", { name: "Attachments" }).getByText("plan.png").waitFor();
    await field.fill("What is this?");
    await page.getByRole("button", { name: "Send" }).click();
    const picture = page.getByRole("button", { name: "Show the picture plan.png" });
    await picture.waitFor();
    await until(() => picture.locator("img").evaluate((image) => image.naturalWidth > 0), "the picture is loaded with the sign-in");
    await picture.click();
    await page.getByRole("dialog", { name: "plan.png" }).waitFor();
    await page.keyboard.press("Escape");
    await ended(page);
  },

  /** A reload while a reply is written: what was written is there, and the rest follows. */
  async reload() {
    const page = await start();
    await begin(page, "Count slowly.");
    await until(async () => (await page.locator(".live").innerText()).includes("word5"), "the reply has begun");
    await page.getByLabel("Prompt", { exact: true }).fill("A draft.");
    await page.reload();
    const live = page.locator(".live");
    await until(async () => (await live.innerText().catch(() => "")).includes("word0 word1 word2 word3"), "the beginning is shown again");
    check(await page.locator(".live-message").isVisible(), "the reply is still being written");
    check((await page.getByLabel("Prompt", { exact: true }).inputValue()) === "A draft.", "the draft is kept");
    await page.keyboard.press("Escape");
    await page.getByLabel("Prompt", { exact: true }).fill("And again.");
    await page.getByRole("button", { name: "Queue" }).click();
    await page.locator(".queued").getByText("And again.").waitFor();
    await ended(page);
    const words = (await page.getByRole("article", { name: /^Reply/ }).first().innerText()).match(/word\d+/g);
    check(words.join() === Array.from({ length: settings.words }, (_, word) => `word${word}`).join(), `each word is there once: ${words}`);
    await page.locator(".messages").getByText("Counted again.").waitFor();
  },

  /** A page that is open for a long time does not grow with the turns, and earlier messages come back when somebody asks. */
  async long_session() {
    const page = await start();
    const session = await begin(page, "Chat with me.");
    await ended(page);
    const first = await sizeAfterTurns(page, session, 1, 90);
    const second = await sizeAfterTurns(page, session, 91, 190);
    for (const { messages } of [first, second]) check(messages >= 100 && messages <= 160, `the latest messages are in the page: ${messages}`);
    for (const name of ["nodes", "listeners"]) {
      const [before, after] = [first, second].map((size) => size[name] / size.messages);
      check(after < before * 1.2, `${name} for each message: ${before} after 90 turns, ${after} after 190`);
    }
    const numbers = () => page.locator(".message.person").evaluateAll((prompts) => prompts.map((prompt) => Number(/Prompt (\d+)/.exec(prompt.textContent)?.[1] ?? 0)));
    const [earliest] = await numbers();
    await page.getByRole("button", { name: "Show earlier messages" }).click();
    await until(async () => (await numbers())[0] < earliest, "earlier messages are shown");
    const shown = await numbers();
    check(shown.every((number, index) => number === shown[0] + index) && shown.at(-1) === 190, `all prompts are in order: ${shown}`);
  },

  /** A page that is open for many long replies does not grow with them, and earlier messages come back when somebody asks. */
  async long_replies() {
    const page = await start();
    const session = await begin(page, "Write a novel.");
    await ended(page);
    const characters = () => page.locator("div.messages").evaluate((list) => list.textContent.length);
    const messages = () => page.locator(".message").count();
    // On a busy machine, the page removes earlier messages a moment after the turn has ended.
    const isShort = async () => await messages() < 24 && await characters() < 420_000;
    const first = await sizeAfterTurns(page, session, 1, 12);
    await until(isShort, "the page removes earlier messages");
    check(await messages() >= 10, `the latest replies are in the page: ${await messages()} messages`);
    const second = await sizeAfterTurns(page, session, 13, 25);
    await until(isShort, "the page did not grow");
    check(second.nodes < first.nodes * 2, `nodes: ${first.nodes} after 12 turns, ${second.nodes} after 25`);
    await page.getByRole("button", { name: "Show earlier messages" }).click();
    await page.getByRole("article", { name: "Reply: Reply 1." }).waitFor();
  },

  /** A slow server gets one request for the inbox at a time, so that the browser keeps connections for everything else. */
  async slow_inbox() {
    const page = await start();
    await page.getByRole("link", { name: /^Inbox/ }).waitFor();
    let [running, most, answered] = [0, 0, 0];
    await page.route(/\/api\/inbox/, async (route) => {
      running += 1;
      most = Math.max(most, running);
      await page.waitForTimeout(5_000);
      running -= 1;
      answered += 1;
      // The page may have given the request up.
      await route.continue().catch(() => {});
    });
    await page.getByRole("link", { name: /^Inbox/ }).click();
    await until(async () => answered >= 3, "the inbox is read again and again");
    // Opening the page reads the inbox at once, although it may be read already.
    check(most <= 2, `the requests do not pile up: ${most}`);
    await page.getByRole("link", { name: "Agents" }).click();
    await page.getByRole("heading", { name: "Agents" }).waitFor();
    await page.unrouteAll({ behavior: "ignoreErrors" });
  },

  /** Somebody reads an earlier part while a reply is written: the view stays there until they go to the end. */
  async read_while_it_is_written() {
    const page = await start({ height: 420 });
    await begin(page, "Talk.");
    const rest = () => page.locator(".scroll").evaluate((scroll) => scroll.scrollHeight - scroll.clientHeight - scroll.scrollTop);
    const overflows = () => page.locator(".scroll").evaluate((scroll) => scroll.scrollHeight > scroll.clientHeight + 200);
    await until(overflows, "the reply is longer than the window");
    check(await rest() < 60, "the view follows the reply");
    await page.locator(".scroll").hover();
    await page.mouse.wheel(0, -100);
    await until(async () => await rest() > 200, "the reply goes on below the window");
    await page.getByRole("button", { name: "Latest" }).click();
    await until(async () => await rest() < 60, "the view follows again");
    await page.getByRole("button", { name: "Stop" }).click();
    await page.getByText("The turn was stopped.").waitFor();
    // What was written is still there, with the remark that it is not a part of the conversation.
    await page.getByRole("article", { name: "Reply that was not completed" }).getByText(/word0 word1/).waitFor();
  },

  /** Stops a turn, and tries it again. */
  async stop_and_retry() {
    const page = await start();
    await begin(page, "Count slowly.");
    await until(async () => (await page.locator(".live").innerText()).includes("word2"), "the reply has begun");
    await page.getByRole("button", { name: "Stop" }).click();
    await page.getByText("The turn was stopped.").waitFor();
    await page.getByRole("button", { name: "Try again" }).click();
    // The script repeats a reply that was cancelled.
    const reply = page.getByRole("article", { name: /^Reply/ }).last();
    await until(async () => (await reply.innerText().catch(() => "")).includes(`word${settings.words - 1}`), "the reply is complete");
    await ended(page);
    const prompts = await page.getByRole("article", { name: "Prompt: Count slowly." }).count();
    check(prompts === 2, `the prompt is there twice, once undone: ${prompts}`);
  },

  /** Two people decide about one call: one wins, and the other is told. */
  async two_people() {
    const first = await start();
    const second = await start({ token: settings.other });
    await begin(first, "Pay ann.");
    for (const page of [first, second]) {
      await page.goto(`${settings.url}/console/#/inbox`);
      await page.locator("ah-inbox .decision").waitFor();
    }
    // The second page does not learn of the decision before its person acts.
    await second.route("**/api/inbox*", () => {});
    await first.locator("ah-inbox .decision").getByRole("button", { name: "Allow once" }).click();
    await first.getByText("Nothing waits for you").waitFor();
    const card = second.locator("ah-inbox .decision");
    await card.getByRole("button", { name: "Deny" }).click();
    await card.getByRole("button", { name: "Deny", exact: true }).click();
    await second.locator(".notice").getByText(/somebody else decided first/i).waitFor();
    await second.unroute("**/api/inbox*");
    await second.getByText("Nothing waits for you").waitFor();
  },

  /** Results and replies that try to become markup. */
  async hostile_result() {
    const page = await start();
    const session = await begin(page, "Look at this.");
    await ended(page);
    await page.locator("details.tool summary").first().click();
    await harmless(page);
    const shown = await page.locator("div.messages").innerText();
    check(shown.includes("<script>") && shown.includes("<img src=x"), `markup is shown as text: ${shown}`);
    check(shown.includes("U+202E") && shown.includes("U+0007"), `invisible characters are shown: ${shown}`);
    // A result of 10 MB, which the page must show without becoming slow, even if a server does not cut it.
    const piece = "<img src=x onerror=\"window.hacked=1\"><script>window.hacked=1</script>\u202e\u0000 javascript:alert(1) ";
    const text = piece.repeat(Math.ceil(10_000_000 / piece.length));
    await page.route("**/transcript*", async (route) => {
      const answer = await route.fetch();
      const transcript = await answer.json();
      for (const call of transcript.calls) if (call.result) call.result.content = [{ kind: "text", text, omitted_bytes: 0 }];
      await route.fulfill({ response: answer, json: transcript });
    });
    await page.goto(`${settings.url}/console/#/inbox`);
    // Otherwise, the chat could still be shown with the transcript that it has.
    await page.getByRole("heading", { name: "Inbox" }).waitFor();
    await page.goto(`${settings.url}/console/#/chat/${encodeURIComponent(session)}`);
    await page.locator("details.tool summary").first().click();
    await page.getByRole("button", { name: /^Show more/ }).click();
    await harmless(page);
    const size = await page.evaluate(() => document.body.textContent.length);
    check(size < 500_000, `only a part of the result is in the page: ${size}`);
    const asked = Date.now();
    await page.evaluate(() => new Promise((resolve) => requestAnimationFrame(() => requestAnimationFrame(resolve))));
    check(Date.now() - asked < 10_000, "the page still answers");
  },

  /** A token that may only read. */
  async token_without_the_right() {
    const writer = await start();
    const session = await begin(writer, "Pay ann.");
    await writer.locator(".decision").waitFor();
    const reader = await start({ token: settings.reader });
    await reader.goto(`${settings.url}/console/#/chat/${encodeURIComponent(session)}`);
    await reader.getByText("it may not write prompts").waitFor();
    check(await reader.getByLabel("Prompt", { exact: true }).count() === 0, "there is no field for prompts");
    await reader.getByRole("link", { name: /^Inbox/ }).click();
    const card = reader.locator("ah-inbox .decision");
    await card.waitFor();
    check(await card.getByRole("button", { name: "Allow once" }).isDisabled(), "the person cannot decide");
    check((await card.innerText()).includes("does not have the right"), "the page says which right is missing");
    // The page is not the protection: the same requests are refused.
    const status = await reader.evaluate(async (path) => {
      const { secret } = JSON.parse(sessionStorage.getItem("agent-host.sign-in"));
      const answer = await fetch(path, { method: "POST", headers: { authorization: `Bearer ${secret}`, "content-type": "application/json" }, body: JSON.stringify({ prompt: "x" }) });
      return answer.status;
    }, `/api/sessions/${encodeURIComponent(session)}/prompts`);
    check(status === 403, `the server refuses the request: ${status}`);
    // A wrong token signs nobody in.
    const other = await open(browser, { url: settings.url });
    pages.push(other);
    await other.getByLabel("Token", { exact: true }).fill("aht_wrong");
    await other.keyboard.press("Enter");
    await other.getByRole("alert").getByText(/does not exist/).waitFor();
  },

  /** From the sign-in to an allowed call, with the keyboard only. */
  async keyboard_only() {
    const page = await open(browser, settings);
    pages.push(page);
    await page.getByLabel("Token", { exact: true }).waitFor();
    await page.keyboard.type(settings.token);
    await page.keyboard.press("Enter");
    await page.getByRole("navigation", { name: "Pages" }).waitFor();
    await page.keyboard.press("Alt+n");
    await page.waitForURL(/#\/chat\/new$/);
    await until(() => page.evaluate(() => document.activeElement.tagName === "TEXTAREA"), "the field has the focus");
    // The choice of the agent is before the field.
    await page.keyboard.press("Shift+Tab");
    await page.keyboard.type("payer");
    await page.keyboard.press("Tab");
    await page.keyboard.type("Pay ann.");
    await page.keyboard.press("Enter");
    await page.locator(".decision").waitFor();
    await tabTo(page, "Inbox");
    await page.keyboard.press("Enter");
    await page.locator("ah-inbox .decision").waitFor();
    await until(async () => {
      await page.keyboard.press("Tab");
      return page.evaluate(() => document.activeElement.matches(".decision"));
    }, "the card gets the focus");
    await page.keyboard.press("d");
    await page.keyboard.type("Not today.");
    await page.keyboard.press("Enter");
    await page.getByText("Nothing waits for you").waitFor();
    await tabTo(page, "Account");
    await page.keyboard.press("Enter");
    await page.keyboard.press("ArrowDown");
    await page.keyboard.press("ArrowDown");
    await page.keyboard.press("Enter");
    check(await page.evaluate(() => document.documentElement.dataset.theme) === "dark", "the theme was chosen in the menu");
  },

  /** After an action, the focus is on what follows. */
  async focus() {
    const page = await start();
    const focused = (selector) => until(() => page.evaluate((wanted) => document.activeElement.matches(wanted), selector), `the focus is on ${selector}`);
    const press = async (button) => {
      await button.focus();
      await page.keyboard.press("Enter");
    };
    // Somebody who has begun a session goes on writing. A decision in a session, and the last one of the inbox.
    await begin(page, "Pay ann.");
    await focused(".conversation .composer textarea");
    await press(page.locator(".decision").getByRole("button", { name: "Allow once" }));
    await focused(".composer textarea");
    await ended(page);
    await begin(page, "Pay ann.");
    await page.locator(".decision").waitFor();
    await page.goto(`${settings.url}/console/#/inbox`);
    await press(page.locator("ah-inbox .decision").getByRole("button", { name: "Allow once" }));
    await focused("ah-inbox h1");
    await press(page.getByRole("button", { name: "Close the notice" }).first());
    await focused("main");
    // Dialogs and menus give the focus back.
    await press(page.getByRole("button", { name: /^Account/ }));
    await page.getByRole("menuitem", { name: "Keyboard shortcuts" }).focus();
    await page.keyboard.press("Enter");
    await page.getByRole("dialog").waitFor();
    await page.keyboard.press("Escape");
    await focused(".account");
    // The button for the next step keeps the focus, and passes it on at the last step.
    const session = await begin(page, "Show me everything.");
    await ended(page);
    await press(page.locator(".budget summary"));
    await page.keyboard.press("Escape");
    await focused(".budget:not([open]) summary");
    await page.goto(`${settings.url}/console/#/turns/${encodeURIComponent(session)}/1/1`);
    await press(page.getByRole("button", { name: /^Next step/ }));
    await page.getByRole("heading", { name: "Step 2 of 2" }).waitFor();
    await focused("#step-heading");
  },

  /** A page whose module comes late does not replace the page that was chosen after it. */
  async late_page() {
    const page = await open(browser, settings);
    pages.push(page);
    let isLate = true;
    await page.route("**/pages/chat.js", async (route) => {
      while (isLate) await new Promise((resolve) => setTimeout(resolve, 20));
      await route.continue();
    });
    await page.reload();
    await signIn(page, settings.token);
    await page.goto(`${settings.url}/console/#/plugins/everything`);
    await page.locator(".plugin-list").waitFor();
    // Longer than the time after which a page says that it is loading.
    await page.waitForTimeout(600);
    check(await page.locator(".plugin-list").isVisible(), "the page that was chosen is still shown");
    isLate = false;
    await page.getByRole("link", { name: "Chat" }).click();
    await page.locator(".session-list").waitFor();
  },

  /** A code signs in once, and does not stay in the address. */
  async sign_in_code() {
    const page = await open(browser, settings);
    pages.push(page);
    await page.goto("about:blank");
    await page.goto(`${settings.url}/console/#sign-in=${settings.code}`);
    await page.getByRole("navigation", { name: "Pages" }).waitFor();
    check(!page.url().includes("ahc_"), `the code is not in the address: ${page.url()}`);
    const stored = await page.evaluate(() => JSON.stringify([{ ...sessionStorage }, { ...localStorage }, document.cookie]));
    check(stored.includes("ahs_") && !stored.includes("aht_") && !stored.includes("ahc_"), "only the sign-in is stored");
    const other = await open(browser, settings);
    pages.push(other);
    await other.goto("about:blank");
    await other.goto(`${settings.url}/console/#sign-in=${settings.code}`);
    await other.getByRole("alert").getByText(/used already/).waitFor();
    await page.getByRole("button", { name: /^Account/ }).click();
    await page.getByRole("menuitem", { name: "Sign out" }).click();
    await page.getByText("You are signed out.").waitFor();
  },

  /** Every page in both themes, checked by axe-core. */
  async accessibility() {
    const source = readFileSync(require.resolve("axe-core/axe.min.js"), "utf8");
    const found = [];
    for (const theme of ["light", "dark"]) {
      for (const width of [1440, 390]) {
        const page = await open(browser, { url: settings.url, theme, width });
        pages.push(page);
        const look = async (place) => {
          // The program of axe-core comes from the test, so that the policy of the page stays as it is.
          const { violations } = await page.evaluate(`${source}; axe.run({ resultTypes: ["violations"] })`);
          for (const { id, help, nodes } of violations) found.push(`${place}, ${theme}, ${width}: ${id}: ${help}: ${nodes.map((node) => node.html.slice(0, 200)).join(" | ")}`);
        };
        await page.getByLabel("Token", { exact: true }).waitFor();
        await look("sign-in");
        await signIn(page, settings.token);
        await begin(page, "Show me everything.");
        await ended(page);
        await page.locator("details.tool summary").first().click();
        await page.locator(".budget summary").click();
        await look("session");
        await begin(page, "Pay ann.");
        await page.locator(".decision").waitFor();
        await look("approval in a session");
        await begin(page, "Write long words.");
        await page.locator(".link-host").waitFor();
        await look("a link whose host is shown");
        await begin(page, "Count the lines.");
        await page.locator(".decision.first_use").waitFor();
        await look("first use in a session");
        await page.route("**/api/inbox*", deniedGrants);
        await page.goto(`${settings.url}/console/#/inbox`);
        await page.locator("ah-inbox .decision.denied_grants").first().waitFor();
        await look("denied grants");
        await page.unroute("**/api/inbox*");
        await page.goto(`${settings.url}/console/#/chat`);
        await page.goto(`${settings.url}/console/#/inbox`);
        await page.locator("ah-inbox .decision").first().waitFor();
        await look("inbox");
        await page.locator("ah-inbox .decision").first().getByRole("button", { name: "Edit" }).click();
        await look("changed arguments");
        for (const [address, ready] of [["chat", ".session-list li"], ["chat/new", ".new-session"], ["about", "dl"], ["nothing", ".empty"]]) {
          await page.goto(`${settings.url}/console/#/${address}`);
          await page.locator(ready).first().waitFor();
          await look(address);
        }
        await page.keyboard.press("Control+/");
        await page.getByRole("dialog").waitFor();
        await look("shortcuts");
      }
    }
    check(found.length === 0, `violations:\n${found.join("\n")}`);
  },
};

/** Checks that no text became markup. */
async function harmless(page) {
  const found = await page.evaluate(() => ({
    hacked: window.hacked,
    elements: document.querySelectorAll("main script, main iframe, main object, main [onerror], main [onclick], main svg script, main style").length,
    pictures: [...document.querySelectorAll("main img")].filter((image) => !/^(blob:|http:\/\/127)/.test(image.src)).length,
    links: [...document.querySelectorAll("main a[href]")].filter((link) => !["http:", "https:", "mailto:"].includes(link.protocol)).length,
  }));
  check(found.hacked === undefined && found.elements === 0 && found.pictures === 0 && found.links === 0, JSON.stringify(found));
}

/** Plays turns, and returns the number of messages, nodes and listeners of the page, without what the browser can throw away. */
async function sizeAfterTurns(page, session, from, to) {
  await page.evaluate(async ({ path, from: first, to: last }) => {
    const { secret } = JSON.parse(sessionStorage.getItem("agent-host.sign-in"));
    const headers = { authorization: `Bearer ${secret}`, "content-type": "application/json" };
    for (let number = first; number <= last; number += 1) {
      await fetch(`${path}/prompts`, { method: "POST", headers, body: JSON.stringify({ prompt: `Prompt ${number}.` }) });
      while ((await (await fetch(path, { headers })).json()).state === "running") await new Promise((resolve) => setTimeout(resolve, 10));
    }
  }, { path: `/api/sessions/${encodeURIComponent(session)}`, from, to });
  await page.getByRole("article", { name: `Reply: Reply ${to}.` }).waitFor();
  await ended(page);
  const cdp = await page.context().newCDPSession(page);
  await cdp.send("Performance.enable");
  await cdp.send("HeapProfiler.collectGarbage");
  const metrics = Object.fromEntries((await cdp.send("Performance.getMetrics")).metrics.map(({ name: metric, value }) => [metric, value]));
  await cdp.detach();
  return { messages: await page.locator(".message").count(), nodes: metrics.Nodes, listeners: metrics.JSEventListeners };
}

/** Waits until an element shows all of these texts. What somebody opens is filled a moment later. */
async function shows(element, texts, what) {
  await until(async () => {
    const shown = await element.innerText();
    return texts.every((text) => shown.includes(text));
  }, what);
}

/** Presses Tab until the focus is on the element with this name. */
async function tabTo(page, text) {
  await until(async () => {
    await page.keyboard.press("Tab");
    return page.evaluate((wanted) => (document.activeElement.getAttribute("aria-label") ?? document.activeElement.textContent).startsWith(wanted), text);
  }, `the focus reaches ${text}`);
}

const axe = readFileSync(require.resolve("axe-core/axe.min.js"), "utf8");
Object.assign(scenarios, builderScenarios({ start, browser, settings, openPages: pages, axe }), pictureScenarios({ browser, settings, pages }), newUserScenarios({ browser, settings, pages }));

try {
  await scenarios[name]();
  const problems = pages.flatMap((page) => page.problems);
  check(problems.length === 0, `the pages reported:\n${problems.join("\n")}`);
} catch (error) {
  for (const [number, page] of pages.entries()) {
    const text = await page.evaluate(() => document.body.innerText).catch(() => "");
    console.error(`page ${number}, ${page.url()}\n${page.problems.join("\n")}\n${text.slice(0, 3_000)}\n`);
    if (process.env.AGENT_HOST_CONSOLE_PICTURE) await page.screenshot({ path: `${process.env.AGENT_HOST_CONSOLE_PICTURE}-${number}.png` }).catch(() => {});
  }
  console.error(error);
  process.exitCode = 1;
} finally {
  await browser.close();
}
