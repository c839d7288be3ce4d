// The sidebar: all conversations, searched, renamed, removed, exported and imported.

import { useRef, useState } from "preact/hooks";
import { useCell } from "../cell";
import { library, remove, running } from "../chat/chat";
import type { Conversation } from "../chat/conversation";
import { conversationsOf } from "../chat/import";
import { download, toJson } from "../chat/transfer";
import { isConverting } from "../shortcuts";
import { show, shownView } from "../shown_view";
import { focusNextRow, focusSoon } from "./focus";
import { Icon, IconButton } from "./icon";
import { notify } from "./notice";

export function Sidebar({ onChosen }: { onChosen: () => void }) {
  const all = useCell(library.conversations);
  const [query, setQuery] = useState("");
  const found = query.trim() ? library.search(query) : all;
  const choose = (conversation: Conversation | null) => {
    library.shown.value = conversation;
    onChosen();
  };
  const onKeyDown = (event: KeyboardEvent) => {
    if (event.key !== "Escape" || isConverting(event)) return;
    setQuery("");
    event.stopPropagation(); // it must not stop an answer
  };
  return (
    <nav class="sidebar" aria-label="Conversations">
      <button type="button" class="new-chat" onClick={() => choose(null)}>
        <Icon name="plus" />New chat
      </button>
      <label class="search">
        <Icon name="search" />
        <input
          id="search"
          type="search"
          aria-label="Search conversations"
          dir="auto"
          placeholder="Search"
          value={query}
          onInput={(event) => setQuery(event.currentTarget.value)}
          onKeyDown={onKeyDown}
        />
      </label>
      <ul class="conversations">
        {found.map((conversation) => (
          <Row key={conversation.record.id} conversation={conversation} onChosen={() => choose(conversation)} />
        ))}
      </ul>
      {query.trim() && !found.length && <p class="nothing">Nothing found.</p>}
      <MachineLink onChosen={onChosen} />
      <Transfer />
    </nav>
  );
}

function MachineLink({ onChosen }: { onChosen: () => void }) {
  const isShown = useCell(shownView) === "machine";
  const open = () => {
    show("machine");
    onChosen();
  };
  return (
    <button type="button" class={`machine-link ${isShown ? "shown" : ""}`} aria-current={isShown} onClick={open}>
      <Icon name="machine" />This machine
    </button>
  );
}

function Row({ conversation, onChosen }: { conversation: Conversation; onChosen: () => void }) {
  const [isRenamed, setRenamed] = useState(false);
  const isChat = useCell(shownView) === "chat";
  const isShown = useCell(library.shown) === conversation && isChat;
  const answers = useCell(running);
  const isRunning = [...conversation.turns.keys()].some((id) => answers.has(id));
  const title = conversation.record.title || "New chat";
  const choice = useRef<HTMLButtonElement>(null);
  const rename = (text: string) => {
    setRenamed(false);
    focusSoon(() => choice.current);
    if (text.trim()) void library.rename(conversation, text.trim());
  };
  const removeWithUndo = () => {
    focusNextRow();
    void remove(conversation);
    notify(`“${title}” is removed.`, { label: "Undo", run: () => void library.restore(conversation) });
  };
  if (isRenamed) return <li><Renaming title={title} onDone={rename} /></li>;
  return (
    <li class={isShown ? "shown" : ""}>
      <button type="button" class="title" ref={choice} aria-current={isShown} onClick={onChosen} title={title}>
        {isRunning && <span class="dots" role="img" aria-label="being answered" />}
        <span dir="auto">{title}</span>
      </button>
      <IconButton icon="edit" label={`Rename ${title}`} onClick={() => setRenamed(true)} />
      <IconButton icon="remove" label={`Remove ${title}`} onClick={removeWithUndo} />
    </li>
  );
}

function Renaming({ title, onDone }: { title: string; onDone: (text: string) => void }) {
  const isOver = useRef(false); // an input that is removed loses the focus, and says so
  const end = (text: string) => {
    if (isOver.current) return;
    isOver.current = true;
    onDone(text);
  };
  const onKeyDown = (event: KeyboardEvent & { currentTarget: HTMLInputElement }) => {
    if (isConverting(event)) return;
    if (event.key === "Enter") end(event.currentTarget.value);
    if (event.key === "Escape") end("");
    event.stopPropagation();
  };
  return (
    <input
      class="renaming"
      aria-label="Title"
      dir="auto"
      defaultValue={title}
      ref={selectOnce}
      onKeyDown={onKeyDown}
      onBlur={(event) => end(event.currentTarget.value)}
    />
  );
}

function selectOnce(input: HTMLInputElement | null): void {
  if (!input || input === document.activeElement) return;
  input.focus();
  input.select();
}

/** How many of the imported conversations were new here. */
function importedText(areNew: boolean[]): string {
  const count = areNew.filter(Boolean).length;
  const known = areNew.length - count;
  const text = `${count} ${count === 1 ? "conversation is" : "conversations are"} new`;
  return known ? `${text}, ${known} ${known === 1 ? "was" : "were"} here` : text;
}

function Transfer() {
  const input = useRef<HTMLInputElement>(null);
  const isLoaded = useCell(library.isLoaded); // what is imported before would be lost
  const save = async () => {
    const day = new Date().toISOString().slice(0, 10);
    try {
      download(`conversations-${day}.json`, await toJson(library.conversations.value, library.bytesOf));
    } catch (error) {
      notify(`The conversations are not exported: ${(error as Error).message}`);
    }
  };
  const load = async () => {
    const file = input.current!.files?.[0];
    input.current!.value = "";
    if (!file) return;
    const areNew: boolean[] = [];
    try {
      for await (const { conversation, media } of conversationsOf(file)) {
        areNew.push(await library.merge(conversation, media));
      }
      notify(`${importedText(areNew)}.`);
    } catch (error) {
      const before = areNew.length ? ` Before that: ${importedText(areNew)}.` : "";
      notify(`${file.name}: ${(error as Error).message}.${before}`);
    }
  };
  return (
    <div class="transfer">
      <button type="button" disabled={!isLoaded} onClick={() => void save()}><Icon name="save" />Export</button>
      <button type="button" disabled={!isLoaded} onClick={() => input.current!.click()}><Icon name="load" />Import</button>
      <input ref={input} type="file" accept=".json" hidden aria-label="Conversations" onChange={() => void load()} />
    </div>
  );
}
