// The functions of the host, which a `TestHost` answers.

import assert from "node:assert/strict";
import fs from "node:fs";
import os from "node:os";
import path from "node:path";
import test from "node:test";
import { HttpError, config, files, http, log, media, model, values } from "agent-host-sdk";
import { TestHost } from "agent-host-sdk/testing";

const API = "https://api.example.com/v1";

test("http sends the parts of a request and reads the answer", async () => {
  const host = new TestHost()
    .http(`GET ${API}/a?q=x%20y&n=1&n=2#part`, { json: { ok: true }, headers: { "X-One": "1" } })
    .http(`POST ${API}/b`, { status: 201, text: "made" })
    .http(`PUT ${API}/b`)
    .http(`DELETE ${API}/b`, { status: 204 });
  await host.run(async () => {
    const answer = await http.get(`${API}/a#part`, { query: { q: "x y", n: [1, 2], none: undefined } });
    assert.deepEqual([answer.status, answer.ok, answer.json(), answer.headers["x-one"]], [200, true, { ok: true }, "1"]);
    assert.equal((await http.post(`${API}/b`, { n: 1 })).expectOk().text(), "made");
    assert.equal((await http.put(`${API}/b`, "text")).status, 200);
    assert.equal((await http.delete(`${API}/b`)).status, 204);
  });
  assert.deepEqual(host.requests[1], {
    method: "POST",
    url: `${API}/b`,
    headers: { "content-type": "application/json" },
    body: '{"n":1}',
  });
});

test("http explains why there is no usable answer", async () => {
  const host = new TestHost()
    .http(`GET ${API}/refused`, { error: "connection-refused" })
    .http(`GET ${API}/missing`, { status: 404, text: "no such order" })
    .http(`GET ${API}/busy`, { status: 429, headers: { "retry-after": "2" } })
    .http(`GET ${API}/private`, { status: 403 })
    .http(`GET ${API}/large`, { text: "0123456789" });
  const error = (path, options) => host.run(() => http.get(`${API}${path}`, options).then((answer) => answer.expectOk()));
  await assert.rejects(error("/other?token=x"), { kind: "denied", message: `the request GET ${API}/other is not granted` });
  await assert.rejects(error("/refused"), { kind: "unavailable", message: /: connection refused$/ });
  await assert.rejects(error("/missing"), { kind: "not-found", status: 404, message: /404: no such order$/ });
  await assert.rejects(error("/busy"), { kind: "unavailable", retryAfter: 2000 });
  await assert.rejects(error("/private"), { kind: "denied", status: 403 });
  await assert.rejects(error("/large", { atMost: 9 }), { kind: "failed", message: /more than 9 bytes/ });
  await assert.rejects(host.run(() => http.get("ftp://example.com/")), { kind: "invalid-arguments" });
  const notJson = host.run(async () => (await http.get(`${API}/large`)).json());
  await assert.rejects(notJson, (error) => error instanceof HttpError && error.message.endsWith("is not JSON"));
});

test("values are kept by bucket and key", async () => {
  await assert.rejects(new TestHost().run(() => values.get("a")), { kind: "denied" });
  await new TestHost().values().run(() => {
    values.set("a", { n: 1 });
    values.update("a", ({ n }) => ({ n: n + 1 }));
    assert.deepEqual(values.get("a"), { n: 2 });
    assert.equal(values.get("b"), undefined);
    assert.equal(values.update("b", () => undefined), undefined);
    assert.deepEqual([values.increment("c"), values.increment("c", 4)], [1, 5]);
    assert.deepEqual(values.keys(), ["a", "c"]);
    values.delete("a");
    assert.deepEqual(values.keys(), ["c"]);
    const other = values.open("other");
    other.setBytes("raw", new Uint8Array([0xff]));
    assert.deepEqual([...other.getBytes("raw")], [0xff]);
    assert.throws(() => other.get("raw"), { message: /is not JSON/ });
    assert.throws(() => values.set("a".repeat(1025), 1), { kind: "failed" });
    assert.throws(() => values.set("a", undefined), TypeError);
  });
});

test("an update is repeated if another call changes the value", async () => {
  await new TestHost().values().run(() => {
    values.set("a", 1);
    let attempts = 0;
    const result = values.update("a", (value) => {
      attempts += 1;
      if (attempts === 1) values.set("a", 10);
      return value + 1;
    });
    assert.deepEqual([attempts, result, values.get("a")], [2, 11, 11]);
    assert.throws(() => values.update("a", (value) => (values.set("a", value + 1), value)), { kind: "unavailable" });
  });
});

test("files are read and written in granted trees only", async () => {
  const folder = fs.mkdtempSync(path.join(os.tmpdir(), "agent-host-sdk-"));
  const inside = (name) => path.join(folder, name);
  await new TestHost().tree(folder).run(() => {
    files.write(inside("b.txt"), "héllo");
    files.createFolder(inside("a"));
    assert.deepEqual(files.list(folder), [
      { name: "a", isFolder: true },
      { name: "b.txt", isFolder: false },
    ]);
    assert.equal(files.readText(inside("a/../b.txt")), "héllo");
    assert.throws(() => files.read(inside("b.txt"), { atMost: 3 }), { message: /more than 3 bytes/ });
    assert.throws(() => files.readText(inside("none")), { kind: "not-found" });
    assert.throws(() => files.readText(inside("../x")), { kind: "denied", message: /outside of the granted trees/ });
    assert.throws(() => files.readText("relative"), { kind: "denied" });
    for (const end of [[0xff], [0xc3], [0xe2, 0x82], [0xed, 0xa0, 0x80], [0xc0, 0x80], [0x80]]) {
      files.write(inside("raw"), new Uint8Array([0x61, 0xc3, 0xa4, ...end]));
      assert.throws(() => files.readText(inside("raw")), { message: /is not UTF-8 text: byte 3 \(from 0\)/ });
    }
    ["b.txt", "a", "raw"].forEach((name) => files.remove(inside(name)));
    assert.deepEqual(files.list(folder), []);
  });
  fs.rmdirSync(folder);
  const outside = { kind: "denied", message: "`/etc/hostname` is outside of the granted trees: `.`" };
  await assert.rejects(new TestHost().tree(".").run(async () => files.read("/etc/hostname")), outside);
});

test("settings, log lines, the model and media reach the test host", async () => {
  const host = new TestHost().config("greeting", "hello").modelAnswer("4");
  const stored = host.addMedia(new TextEncoder().encode("abc"), "text/plain", "a.txt");
  await host.run(async () => {
    assert.deepEqual([config.get("greeting"), config.get("other"), config.getAll()], [
      "hello",
      undefined,
      { greeting: "hello" },
    ]);
    log.warn("careful", { n: 1 });
    assert.equal((await model.ask({ system: "Calculate.", text: "2 + 2" })).text, "4");
    await assert.rejects(model.ask("again"), { kind: "denied" });
    assert.equal(new TextDecoder().decode(media.open(stored.digest).readAll(3)), "abc");
    assert.throws(() => media.open(stored.digest).readAll(2), { message: /at most 2/ });
    assert.throws(() => media.open("sha256:0"), { kind: "not-found" });
    const made = media.create(new Uint8Array(3), "application/octet-stream");
    assert.equal(media.open(made.digest).describe().size, 3);
  });
  assert.deepEqual(host.log, [{ level: "warn", message: 'careful {"n":1}' }]);
  assert.deepEqual(host.questions[0].messages, [{ role: "user", text: "2 + 2" }]);
});
