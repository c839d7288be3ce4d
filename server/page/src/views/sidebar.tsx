// The sidebar: all conversations, searched, renamed, removed, exported and imported.

import { useRef, useState } from "preact/hooks";
import { useCell } from "../cell";
import { library, remove, running } from "../chat/chat";
import type { Conversation } from "../chat/conversation";
import { download, fromJson, toJson } from "../chat/transfer";
import { isConverting } from "../shortcuts";
import { show, shownView } from "../shown_view";
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
          placeholder="Search"
          value={query}
          onInput={(event) => setQuery(event.currentTarget.value)}
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
  const rename = (text: string) => {
    setRenamed(false);
    if (text.trim()) void library.rename(conversation, text.trim());
  };
  const removeWithUndo = () => {
    void remove(conversation);
    notify(`“${title}” is removed.`, { label: "Undo", run: () => void library.restore([conversation]) });
  };
  if (isRenamed) return <li><Renaming title={title} onDone={rename} /></li>;
  return (
    <li class={isShown ? "shown" : ""}>
      <button type="button" class="title" aria-current={isShown} onClick={onChosen} title={title}>
        {isRunning && <span class="dots" role="img" aria-label="being answered" />}
        <span>{title}</span>
      </button>
      <IconButton icon="edit" label={`Rename ${title}`} onClick={() => setRenamed(true)} />
      <IconButton icon="remove" label={`Remove ${title}`} onClick={removeWithUndo} />
    </li>
  );
}

function Renaming({ title, onDone }: { title: string; onDone: (text: string) => void }) {
  const onKeyDown = (event: KeyboardEvent & { currentTarget: HTMLInputElement }) => {
    if (isConverting(event)) return;
    if (event.key === "Enter") onDone(event.currentTarget.value);
    if (event.key === "Escape") onDone("");
    event.stopPropagation();
  };
  return (
    <input
      class="renaming"
      aria-label="Title"
      defaultValue={title}
      ref={selectOnce}
      onKeyDown={onKeyDown}
      onBlur={(event) => onDone(event.currentTarget.value)}
    />
  );
}

function selectOnce(input: HTMLInputElement | null): void {
  if (input && input !== document.activeElement) input.select();
}

function Transfer() {
  const input = useRef<HTMLInputElement>(null);
  const isLoaded = useCell(library.isLoaded); // what is imported before would be lost
  const save = async () => {
    const day = new Date().toISOString().slice(0, 10);
    download(`conversations-${day}.json`, await toJson(library.conversations.value, library.bytesOf));
  };
  const load = async () => {
    const file = input.current!.files?.[0];
    input.current!.value = "";
    if (!file) return;
    try {
      const conversations = fromJson(await file.text(), (medium, bytes) => library.hold(medium, bytes));
      await library.restore(conversations);
      notify(`${conversations.length} conversations are imported.`);
    } catch (error) {
      notify(`${file.name}: ${(error as Error).message}`);
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
