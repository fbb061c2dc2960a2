// What people do with a session as a whole: try again, undo, fork, export, delete.

import { api, sessionPath } from "../core/api.js";
import { go, href } from "../core/router.js";
import { signIn } from "../core/sign-in.js";
import { confirmed } from "../components/dialog.js";
import { saveBlob } from "../components/media.js";
import { notify, notifyError } from "../components/notice.js";

/** Returns whether a turn is open in a session with this state. */
export function isOpenState(state) {
  return state === "running" || state === "suspended";
}

/** Returns the items of the menu of a session. `reload` shows the session again after its messages have changed. */
export function sessionActions(session, state, reload) {
  const isOpen = isOpenState(state);
  const talks = signIn.may("talk");
  return [
    talks && { label: "Try the last turn again", icon: "retry", disabled: isOpen, run: () => retryTurn(session, reload) },
    talks && { label: "Undo the last turn", icon: "undo", disabled: isOpen, run: () => undoTurn(session, reload) },
    talks && { label: "Fork the session", icon: "fork", disabled: isOpen, run: () => forkSession(session, null) },
    signIn.may("administer") && { label: "Export", icon: "export", disabled: isOpen, run: () => exportSession(session) },
    { label: "Copy the id", icon: "copy", run: () => copyId(session) },
    signIn.may("administer") && { label: "Delete the session", icon: "delete", kind: "danger", disabled: state === "running", run: () => deleteSession(session) },
  ];
}

/** Undoes the last turn, and begins a turn with the same prompt. */
export async function retryTurn(session, reload) {
  try {
    await api.post(sessionPath(session, "retry"));
    await reload();
  } catch (error) {
    notifyError(error, "The turn did not begin again.");
  }
}

async function undoTurn(session, reload) {
  const isSure = await confirmed({
    title: "Undo the last turn?",
    text: "The model no longer sees the turn. Its messages stay stored, and what tools changed is not undone.",
    action: "Undo the turn",
  });
  if (!isSure) return;
  try {
    await api.post(sessionPath(session, "undo"));
    notify("The last turn is undone.");
    await reload();
  } catch (error) {
    notifyError(error, "The turn was not undone.");
  }
}

/** Copies a session up to a message, or up to its end, and shows the copy. */
export async function forkSession(session, message) {
  try {
    const copy = await api.post(sessionPath(session, "forks"), message === null ? {} : { message });
    notify("This is the copy. The original session did not change.");
    go(href("chat", copy.session));
  } catch (error) {
    notifyError(error, "The session was not forked.");
  }
}

async function exportSession(session) {
  try {
    saveBlob(await api.blob(sessionPath(session, "export")), `${session.replace(/[^a-z0-9-]/gi, "-")}.json`);
  } catch (error) {
    notifyError(error, "The session was not exported.");
  }
}

async function copyId(session) {
  try {
    await navigator.clipboard.writeText(session);
    notify("The id is copied.");
  } catch {
    notify(`The browser does not allow this page to copy. The id is ${session}`, { kind: "bad" });
  }
}

async function deleteSession(session) {
  const isSure = await confirmed({
    title: "Delete the session?",
    text: "The session is deleted with its messages, its media and the memories that were made from it. This cannot be undone.",
    action: "Delete",
  });
  if (!isSure) return;
  try {
    await api.delete(sessionPath(session));
    notify("The session is deleted.");
    go(href("chat"));
  } catch (error) {
    notifyError(error, "The session was not deleted.");
  }
}
