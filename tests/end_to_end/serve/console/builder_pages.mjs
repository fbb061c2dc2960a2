// Scenarios of the pages for people who build agents: turns, plugins, and agents with their configuration files.
import { createHash } from "node:crypto";
import { readFileSync, renameSync, writeFileSync } from "node:fs";
import { begin, check, ended, open, signIn, until } from "./browser.mjs";

/** Returns the scenarios. `start` opens a page that is signed in, and `openPages` are closed and checked at the end. */
export function builderScenarios({ start, browser, settings, openPages, axe }) {
  const address = (path) => `${settings.url}/console/#/${path}`;

  return {
    /** A turn with its timeline: step by step with the keyboard, the exact prompts, the calls, and a replay. */
    async turn_view() {
      const page = await start();
      const session = await begin(page, "Show me everything.");
      await ended(page);
      await page.goto(address(`turns/${encodeURIComponent(session)}`));
      const timeline = page.locator(".timeline");
      await timeline.waitFor();
      const shown = await timeline.innerText();
      check(shown.includes("Step 1") && shown.includes("Step 2") && shown.includes("probe.echo"), `the timeline has both steps and the tool: ${shown}`);
      check(await timeline.locator(".fill.model").count() === 2, "the timeline has a bar for each model call");
      await page.keyboard.press("Alt+PageDown");
      await page.getByRole("heading", { name: "Step 2 of 2" }).waitFor();
      await page.keyboard.press("Alt+PageDown");
      await page.keyboard.press("Alt+PageUp");
      await page.getByRole("heading", { name: "Step 1 of 2" }).waitFor();
      check(page.url().endsWith("/1/1"), "the address names the step");
      await page.getByRole("tab", { name: "Calls (1)" }).click();
      check((await page.locator(".call-card").innerText()).includes("ahoy"), "the call has its arguments and its result");
      await page.getByRole("button", { name: /^Next step/ }).click();
      await page.getByRole("tab", { name: "Prompt" }).click();
      await page.locator(".prompt-block").first().waitFor();
      const blocks = await page.locator(".prompt-blocks").innerText();
      check(blocks.includes("reusable") && blocks.includes("new"), `the prompt says what is reusable and what is new: ${blocks}`);
      check((await page.locator(".prompt").innerText()).includes("Compared with step 1 of turn 1"), "the previous prompt is named");
      const download = page.waitForEvent("download");
      await page.getByRole("button", { name: "Save the whole request" }).click();
      const request = JSON.parse(readFileSync(await (await download).path(), "utf8"));
      check(request.messages.length === 3, "the request is the whole request");
      await page.getByRole("button", { name: /^Replay with another/ }).click();
      const dialog = page.getByRole("dialog");
      await dialog.getByLabel("Plugin").selectOption("probe");
      await dialog.getByRole("button", { name: "Replay", exact: true }).click();
      await dialog.getByText("1 call gave the recorded result.").waitFor();
    },

    /** A plugin: what it may do and why, and a call of its tool through a form. */
    async plugin_page() {
      const page = await start();
      await page.goto(address("plugins/everything"));
      await page.getByRole("link", { name: /payer/ }).click();
      const access = page.locator(".access");
      await access.waitFor();
      check((await access.innerText()).includes("accounts"), "the plugin gets its folder");
      check((await page.locator(".grants").innerText()).includes("everything.toml:"), "the grant names its file and line");
      await page.goto(address("plugins/everything/probe?part=tools"));
      const form = (name) => page.locator(".tool-form", { has: page.locator("summary", { hasText: name }) });
      const waiting = form("probe.sleep");
      await waiting.locator("summary").click();
      for (const [typed, problem] of [["", "A value is required."], ["soon", "This is not a whole number."]]) {
        await waiting.getByLabel("ms").fill(typed);
        await waiting.getByRole("button", { name: "Call the tool" }).click();
        await waiting.getByText(problem).first().waitFor();
      }
      const tool = form("probe.echo");
      await tool.locator("summary").click();
      await tool.getByLabel("text").fill("ahoy there");
      await tool.getByRole("button", { name: "Call the tool" }).click();
      await until(async () => (await tool.getByRole("status").first().innerText()).includes("ahoy there"), "the result is shown");
      await tool.getByRole("link", { name: "Show the turn" }).click();
      await page.locator(".timeline").waitFor();
    },

    /** A configuration file: problems while typing, the difference and the new permissions before saving, and a conflict. */
    async agent_editor() {
      const page = await start();
      const file = `${settings.folder}/everything.toml`;
      const before = readFileSync(file, "utf8");
      const editor = page.locator("textarea.editor");
      // A link that says what a plugin lacks opens the editor with the lines, and nothing is saved.
      const lines = new URLSearchParams({ part: "configuration", table: "[plugins.text.grants]", add: "read = [\"plugins\"]" });
      await page.goto(address(`agents/everything?${lines}`));
      await until(async () => (await editor.inputValue()).endsWith("\n[plugins.text.grants]\nread = [\"plugins\"]\n"), "the lines are added");
      check(!page.url().includes("probe"), "the lines are not in the address any more");
      check(readFileSync(file, "utf8") === before, "the file is as before");
      await page.goto(address("about"));
      await page.locator("dl").waitFor();
      await page.goto(address("agents/everything?part=configuration"));
      await until(async () => (await editor.inputValue().catch(() => "")).includes("probe"), "what was not saved is still there");
      await page.getByRole("button", { name: "Discard changes" }).click();
      check((await editor.inputValue()) === before, "the editor has the text of the file");
      await editor.fill(`modell = "x"\n${before}`);
      await page.getByRole("button", { name: /^Line 1/ }).waitFor();
      check(await page.getByRole("button", { name: "Review and save…" }).isDisabled(), "a text with problems cannot be saved");
      const text = `${before}read = ["plugins"] # Only to look.\n`;
      await editor.fill(text);
      await page.getByText("The text is valid and not saved yet.").first().waitFor();
      await page.keyboard.press("Control+s");
      const dialog = page.getByRole("dialog");
      await dialog.locator("tr.added").waitFor();
      await dialog.getByRole("button", { name: "Save", exact: true }).click();
      await dialog.getByText("Confirm that the agent may have").waitFor();
      await dialog.getByLabel("The agent may have the new permissions.").check();
      await dialog.getByRole("button", { name: "Save", exact: true }).click();
      await page.getByText("The text is saved and valid.").waitFor();
      check(readFileSync(file, "utf8") === text, "the file has exactly the new text");
      writeFileSync(file, `# Somebody else was here.\n${text}`);
      await editor.fill(`${text}# Mine.\n`);
      await page.getByText("The text is valid and not saved yet.").first().waitFor();
      await page.getByRole("button", { name: "Review and save…" }).click();
      await dialog.getByRole("button", { name: "Save", exact: true }).click();
      await dialog.getByText("was changed in the meantime").waitFor();
      check(readFileSync(file, "utf8").startsWith("# Somebody else"), "the other change is kept");
    },

    /** A person without the right sees the turn, but neither prompts nor grants nor files. */
    async builder_rights() {
      const writer = await start();
      const session = await begin(writer, "Show me everything.");
      await ended(writer);
      const reader = await start({ token: settings.reader });
      await reader.goto(address(`turns/${encodeURIComponent(session)}`));
      await reader.locator(".timeline").waitFor();
      await reader.getByRole("tab", { name: "Prompt" }).click();
      await reader.getByText("it needs the right administer").waitFor();
      for (const path of ["plugins/everything/payer", "agents/everything?part=configuration"]) {
        await reader.goto(address(path));
        await reader.getByText(/needs? the right administer/).waitFor();
      }
      // The page is not the protection: the same requests are refused.
      for (const path of [`api/sessions/${encodeURIComponent(session)}/turns/1/steps/1/prompt`, "api/agents/everything/plugins/payer/authority", "api/agents/everything/configuration"]) {
        const status = await reader.evaluate(async (url) => {
          const { secret } = JSON.parse(sessionStorage.getItem("agent-host.sign-in"));
          return (await fetch(url, { headers: { authorization: `Bearer ${secret}` } })).status;
        }, `/${path}`);
        check(status === 403, `${path}: ${status}`);
      }
    },

    /** A plugin's file is replaced while a session and the plugin's page are open. Both show the swap, and it is rolled back. */
    async hot_swap() {
      const file = `${settings.folder}/plugins/probe.wasm`;
      const [old, changed] = [readFileSync(file), otherVersion(readFileSync(file), "the second version")];
      const session = await start();
      await begin(session, "Show me everything.");
      await ended(session);
      const plugin = await start();
      await plugin.goto(address("plugins/everything/probe?part=versions"));
      await plugin.locator(".rows .badge").getByText("in use").waitFor();
      const digestShown = plugin.locator("dl.fact-list", { hasText: "Digest" });
      check((await digestShown.innerText()).includes(shortDigest(old)), "the page shows the version of the file");
      replaceFile(file, changed);
      await until(async () => (await digestShown.innerText().catch(() => "")).includes(shortDigest(changed)), "the open page shows the new version");
      const rows = plugin.locator(".rows > li");
      await until(async () => await rows.count() === 2, "both versions are listed");
      check(/in use/.test(await rows.first().innerText()) && (await rows.first().innerText()).includes(shortDigest(changed)), "the new version is in use");
      await session.getByLabel("Prompt", { exact: true }).fill("Go on.");
      await session.getByRole("button", { name: "Send" }).click();
      await session.locator(".event-line").getByText("another version of the plugin probe is used").waitFor();
      await session.locator(".messages").getByText("Second turn.").waitFor();
      // The plugin is rolled back on its page.
      await plugin.getByRole("button", { name: "Roll back to it" }).click();
      await plugin.getByRole("dialog").getByRole("button", { name: "Roll back" }).click();
      await plugin.getByText("An earlier version is used.").waitFor();
      await until(async () => (await digestShown.innerText().catch(() => "")).includes(shortDigest(old)), "the page shows the earlier version");
      await session.getByLabel("Prompt", { exact: true }).fill("And on.");
      await session.getByRole("button", { name: "Send" }).click();
      await session.locator(".messages").getByText("Third turn.").waitFor();
      // The lines are where the versions changed, and a reload shows the same.
      const lines = () => session.locator(".messages > *").evaluateAll((all) => all.map((one) => (one.matches(".event-line") ? "line" : one.matches(".person") ? "prompt" : "reply")).filter((kind, index, kinds) => kind !== "reply" || kinds[index - 1] !== "reply").join(" "));
      const expected = "prompt reply line prompt reply line prompt reply";
      await until(async () => await lines() === expected, "the session shows the new version and the roll back");
      await session.getByText("is rolled back").waitFor();
      await session.reload();
      await session.locator(".messages").getByText("Third turn.").waitFor();
      await until(async () => await lines() === expected, "a reload shows the same lines");
    },

    /** axe-core finds no violation on the pages for builders. */
    async builder_accessibility() {
      const found = [];
      for (const theme of ["light", "dark"]) {
        for (const width of [1440, 390]) {
          const page = await open(browser, { url: settings.url, theme, width });
          openPages.push(page);
          await signIn(page, settings.token);
          const session = await begin(page, "Show me everything.");
          await ended(page);
          const turn = `turns/${encodeURIComponent(session)}/1/2`;
          for (const [path, ready, act] of [
            ["turns", ".link-list"], [turn, ".timeline"], [turn, ".timeline", () => page.getByRole("tab", { name: "Prompt" }).click()],
            [turn, ".timeline", () => page.getByRole("tab", { name: /Calls/ }).click()],
            ["plugins", ".plugin-list"], ["plugins/everything/payer", ".access"],
            ["plugins/everything/probe?part=tools", ".tool-form", () => page.locator(".tool-form summary").first().click()],
            ["plugins/everything/probe?part=versions", ".rows"], ["plugins/everything/probe?part=use", ".fact-list.large"],
            ["agents", ".link-list"], ["agents/everything", ".rows"], ["agents/everything?part=configuration", ".editor"],
          ]) {
            await page.goto(address(path));
            await page.locator(ready).first().waitFor();
            await act?.();
            await page.waitForTimeout(300);
            const { violations } = await page.evaluate(`${axe}; axe.run({ resultTypes: ["violations"] })`);
            for (const { id, help, nodes } of violations) found.push(`${path}, ${theme}, ${width}: ${id}: ${help}: ${nodes.map((node) => node.html.slice(0, 200)).join(" | ")}`);
            const isWide = await page.evaluate(() => document.querySelector("main").scrollWidth > document.querySelector("main").clientWidth + 1);
            if (isWide) found.push(`${path}, ${theme}, ${width}: the page scrolls sideways`);
          }
        }
      }
      check(found.length === 0, `violations:\n${found.join("\n")}`);
    },
  };
}

/** Returns the same component with another digest. A custom section at the end changes nothing that the plugin does. */
function otherVersion(component, text) {
  const name = Buffer.from("version");
  const content = Buffer.concat([Buffer.from([name.length]), name, Buffer.from(text)]);
  return Buffer.concat([component, Buffer.from([0, content.length]), content]);
}

/** Replaces a file as a build does: the host never sees a part of it. */
function replaceFile(path, bytes) {
  writeFileSync(`${path}.new`, bytes);
  renameSync(`${path}.new`, path);
}

/** Returns the beginning of a file's digest, as the pages show it. */
function shortDigest(bytes) {
  return createHash("sha256").update(bytes).digest("hex").slice(0, 12);
}
