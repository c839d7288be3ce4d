// Chat: what one can do with conversations.

import { Cell } from "../cell";
import { Passes } from "../drafts/passes";
import { props } from "../server/facts";
import { learnModalities } from "../server/modalities";
import { Answer } from "./answer";
import type { Conversation } from "./conversation";
import { Library } from "./library";
import { askedNow, chatRequest } from "./request";
import { type Change, hearTabs, tellTabs } from "./tabs";
import { type Attachment, newTurn, type Turn } from "./turn";

export const library = new Library();

/** The answers that are being written, by the turn's id. */
export const running = new Cell<ReadonlyMap<string, Answer>>(new Map());

/** Ask something at the end of the shown conversation, or in a new one. */
export async function send(text: string, files: Attachment[]): Promise<void> {
  const conversation = library.shown.value ?? library.create();
  await askBelow(conversation, conversation.record.leaf, text, files);
}

/** Ask another question in place of this one: a branch. */
export async function edit(conversation: Conversation, turn: Turn, text: string, files: Attachment[]): Promise<void> {
  await askBelow(conversation, turn.parent, text, files);
}

/** Another answer to the same question: a branch. */
export async function regenerate(conversation: Conversation, turn: Turn): Promise<void> {
  await answerBelow(conversation, turn.parent);
}

/** Send the results of the called tools. */
export async function giveResults(conversation: Conversation, turn: Turn, results: string[]): Promise<void> {
  let parent = turn.id;
  for (const [index, call] of turn.toolCalls.entries()) {
    const result = newTurn({
      conversation: conversation.record.id,
      parent,
      role: "tool",
      content: results[index] ?? "",
      toolCallId: call.id,
    });
    await library.add(conversation, result);
    parent = result.id;
  }
  await answerBelow(conversation, parent);
}

/** Show another branch. */
export async function showBranch(conversation: Conversation, turn: Turn): Promise<void> {
  conversation.show(turn);
  await library.saveRecord(conversation);
}

/** Whether the shown path ends with an answer that is being written, if only in another tab. */
export function isAnswering(conversation: Conversation | null): boolean {
  return !!runningTurn(conversation);
}

/** End the shown answer, whichever tab writes it. Whether there was one. */
export function stopShown(): boolean {
  const conversation = library.shown.value;
  const turn = runningTurn(conversation);
  if (!conversation || !turn) return false;
  (running.value.get(turn.id) ?? answerOf(conversation, turn, new Passes())).stop();
  conversation.touch();
  tellTabs({ conversation: turn.conversation, isRemoved: false, stopped: turn.id }); // it may not have begun there
  return true;
}

function runningTurn(conversation: Conversation | null): Turn | null {
  const turn = conversation?.turns.get(conversation.record.leaf ?? "");
  return turn?.state === "running" ? turn : null;
}

export async function remove(conversation: Conversation): Promise<void> {
  const removed = library.remove(conversation); // first: an answer that ends now is not kept again
  stopAll(conversation);
  await removed;
}

/** End its answers; another tab that reads one hears of the removal. */
function stopAll(conversation: Conversation): void {
  for (const turn of conversation.turns.values()) {
    running.value.get(turn.id)?.stop();
    if (turn.state === "running") turn.state = "stopped";
  }
}

const isWritten = (turn: Turn) => running.value.has(turn.id);

/** Conversations that other tabs have written while nobody looked at this one. */
const missed = new Set<string>();

/** Follow what another tab has done. */
async function follow({ conversation: id, isRemoved, stopped }: Change): Promise<void> {
  if (stopped) return running.value.get(stopped)?.stop();
  if (!isRemoved && document.hidden) {
    missed.add(id);
    return;
  }
  if (!isRemoved) {
    await refresh(id);
    readAlong(true);
    return;
  }
  const removed = library.get(id);
  if (!removed) return;
  library.drop(removed);
  stopAll(removed);
}

/** Take what other tabs have written; what cannot be read now comes with the next change. */
function refresh(id: string): Promise<void> {
  return library.refresh(id, isWritten).catch(() => undefined);
}

/** Catch up when somebody looks again; until then the page may end without a word. */
async function onVisibility(): Promise<void> {
  if (document.hidden) {
    running.value.forEach((answer) => answer.saveRest());
    return;
  }
  const written = [...missed];
  missed.clear();
  await Promise.all(written.map(refresh));
  readAlong();
}

/** Read the shown answer that another tab has asked for, too, if somebody looks. Its first change comes before the
 * request: `hasBegun` waits for the stream. */
function readAlong(hasBegun = false): void {
  const conversation = library.shown.value;
  if (!conversation || document.hidden || !props()) return;
  for (const turn of conversation.path()) {
    if (turn.state === "running" && turn.offset >= (hasBegun ? 1 : 0)) void resume(conversation, turn, true);
  }
}

/** Go on with what was being written when the page was left. */
export function resumeAll(): void {
  for (const conversation of library.conversations.value) {
    for (const turn of conversation.turns.values()) {
      if (turn.state === "running") void resume(conversation, turn, false);
    }
  }
}

async function askBelow(conversation: Conversation, parent: string | null, text: string, files: Attachment[]) {
  const question = newTurn({ conversation: conversation.record.id, parent, role: "user", content: text, files });
  await library.add(conversation, question);
  await answerBelow(conversation, question.id);
}

async function answerBelow(conversation: Conversation, parent: string | null): Promise<void> {
  if (!isKept(conversation)) return;
  const asked = askedNow();
  const body = chatRequest(conversation.path(parent), asked, library.bytesOf);
  const turn = newTurn({ conversation: conversation.record.id, parent, role: "assistant", state: "running", asked });
  const done = start(conversation, turn, library.newPasses(turn), (answer) => answer.ask(body));
  await library.add(conversation, turn);
  await done;
}

async function resume(conversation: Conversation, turn: Turn, mayCome: boolean): Promise<void> {
  const passes = await library.passesOf(turn);
  if (!isWritten(turn)) await start(conversation, turn, passes, (answer) => answer.resume(mayCome));
}

type Run = (answer: Answer) => Promise<void>;

async function start(conversation: Conversation, turn: Turn, passes: Passes, run: Run): Promise<void> {
  const answer = answerOf(conversation, turn, passes);
  running.value = new Map(running.value).set(turn.id, answer);
  await run(answer);
  const others = new Map(running.value);
  others.delete(turn.id);
  running.value = others;
  conversation.touch();
  void learnModalities(); // a router has loaded the model by now
  await refresh(turn.conversation); // another tab may have got more of it
}

function answerOf(conversation: Conversation, turn: Turn, passes: Passes): Answer {
  return new Answer(turn, passes, () => void saveIfKept(conversation, turn));
}

async function saveIfKept(conversation: Conversation, turn: Turn): Promise<void> {
  if (isKept(conversation)) await library.saveTurn(turn);
}

/** It may have been removed meanwhile, here or in another tab. */
function isKept(conversation: Conversation): boolean {
  return library.get(conversation.record.id) === conversation;
}

hearTabs((change) => void follow(change));
library.shown.subscribe(() => readAlong());
document.addEventListener("visibilitychange", () => void onVisibility());
