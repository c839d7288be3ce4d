// The start of the page.

import "katex/dist/katex.min.css";
import "./styles/page.css";

import { render } from "preact";
import { library, resumeAll } from "./chat/chat";
import { fetchRest, firstPaint } from "./later";
import { browserMemory, tabMemory } from "./memory";
import { keepForLater } from "./offline";
import { facts, followServer, learnFacts } from "./server/facts";
import { applyTheme } from "./settings/settings";
import { show } from "./shown_view";
import { App } from "./views/app";

const SHOWN = "shown";

async function start(): Promise<void> {
  applyTheme();
  const loaded = library.load();
  render(<App />, document.body);
  void goOn();
  await loaded;
  library.shown.value = library.get(tabMemory.recall(SHOWN) ?? browserMemory.recall(SHOWN) ?? "") ?? null;
  tabMemory.remember(SHOWN, shownId());
  library.shown.subscribe(() => {
    tabMemory.remember(SHOWN, shownId());
    browserMemory.remember(SHOWN, shownId()); // for a new tab
    show("chat"); // a chosen conversation is meant to be seen
  });
  library.isLoaded.value = true;
  await learnFacts();
  followServer();
  if (facts.value.state !== "outdated") resumeAll();
}

/** Empty: a new chat. */
function shownId(): string {
  return library.shown.value?.record.id ?? "";
}

async function goOn(): Promise<void> {
  await firstPaint();
  await fetchRest();
  keepForLater();
}

void start();
