// The whole page.

import { useEffect, useState } from "preact/hooks";
import { useCell } from "../cell";
import { library, stopShown } from "../chat/chat";
import { download, toMarkdown } from "../chat/transfer";
import { rest } from "../later";
import { facts } from "../server/facts";
import { choose, chosen, models } from "../server/models";
import { type Deeds, onKeyDown } from "../shortcuts";
import { show, shownView } from "../shown_view";
import { Absence } from "./absence";
import { Composer } from "./composer";
import { HelpDialog } from "./help_dialog";
import { IconButton } from "./icon";
import { KeyDialog } from "./key_dialog";
import { NoticeView } from "./notice";
import { SettingsDialog } from "./settings_dialog";
import { Sidebar } from "./sidebar";
import { Thread } from "./thread";

type Opened = "settings" | "help" | null;

/** As in the style sheets. */
const wide = matchMedia("(min-width: 50rem)");

export function App() {
  const [opened, setOpened] = useState<Opened>(null);
  const [isSidebarOpen, setSidebarOpen] = useSidebar();
  const trouble = useCell(library.trouble);
  const view = useCell(shownView);
  const closeOnPhones = () => !wide.matches && setSidebarOpen(false);
  useShortcuts({
    newChat: () => (library.shown.value = null),
    search: () => {
      setSidebarOpen(true);
      requestAnimationFrame(() => document.getElementById("search")?.focus());
    },
    settings: () => setOpened("settings"),
    help: () => setOpened("help"),
    machine: () => show("machine"),
    stop: stopShown,
    editLast: () => [...document.querySelectorAll<HTMLElement>('[aria-label="Edit question"]')].at(-1)?.click(),
  });
  return (
    <>
      {isSidebarOpen && <Sidebar onChosen={closeOnPhones} />}
      {isSidebarOpen && <div class="curtain" onClick={() => setSidebarOpen(false)} />}
      <div class="page">
        <Head onMenu={() => setSidebarOpen(!isSidebarOpen)} onOpen={setOpened} />
        {trouble && <p class="trouble" role="alert">{trouble}</p>}
        <Absence />
        {view === "machine" && <Machine />}
        <div class="chat" hidden={view !== "chat"}>
          <Thread />
          <Composer />
        </div>
      </div>
      <NoticeView />
      {opened === "settings" && <SettingsDialog onClose={() => setOpened(null)} />}
      {opened === "help" && <HelpDialog onClose={() => setOpened(null)} />}
      <KeyDialog />
    </>
  );
}

function Head({ onMenu, onOpen }: { onMenu: () => void; onOpen: (opened: Opened) => void }) {
  const known = useCell(facts);
  const conversation = useCell(library.shown);
  useCell(conversation?.changes);
  const names = useCell(models);
  const isChat = useCell(shownView) === "chat";
  const heading = isChat ? conversation?.record.title : "This machine";
  const model = known.state === "ready" ? known.props.model_alias : known.state === "waiting" ? (known.isAway ? "away" : "loading") : "";
  const save = () => {
    const name = conversation!.record.title.replace(/[^\p{L}\p{M}\p{N} _-]/gu, "").trim() || "chat";
    download(`${name}.md`, new Blob([toMarkdown(conversation!)], { type: "text/markdown" }));
  };
  return (
    <header class="head">
      <IconButton icon="menu" label="Conversations" onClick={onMenu} />
      <IconButton icon="plus" label="New chat" onClick={() => (library.shown.value = null)} />
      <div class="head-title">{heading && <h1 dir="auto">{heading}</h1>}</div>
      {names.length ? <ModelChoice names={names} /> : <span class="model">{model}</span>}
      {isChat && conversation && <IconButton icon="save" label="Save this chat as Markdown" onClick={save} />}
      <IconButton icon="help" label="Keyboard" class="wide-only" onClick={() => onOpen("help")} />
      <IconButton icon="settings" label="Settings" onClick={() => onOpen("settings")} />
    </header>
  );
}

function Machine() {
  const parts = useCell(rest);
  if (parts === "failed") return <p class="error" role="alert">This view could not be fetched: load the page again.</p>;
  return parts && <parts.MachineView />;
}

/** Chooses the model of a router that is asked next. */
function ModelChoice({ names }: { names: string[] }) {
  const name = useCell(chosen);
  return (
    <select class="model" aria-label="Model" value={name} onChange={(event) => choose(event.currentTarget.value)}>
      {names.map((one) => <option key={one}>{one}</option>)}
    </select>
  );
}

/** Open where there is room beside it. */
function useSidebar() {
  const [isOpen, setOpen] = useState(wide.matches);
  useEffect(() => {
    const follow = () => setOpen(wide.matches);
    wide.addEventListener("change", follow);
    return () => wide.removeEventListener("change", follow);
  }, []);
  return [isOpen, setOpen] as const;
}

function useShortcuts(deeds: Deeds): void {
  useEffect(() => {
    const listener = (event: KeyboardEvent) => onKeyDown(event, deeds);
    addEventListener("keydown", listener);
    return () => removeEventListener("keydown", listener);
  });
}
