// The start of the page.

import "katex/dist/katex.min.css";
import "./styles/page.css";

import { render } from "preact";
import { library, resumeAll } from "./chat/chat";
import { fetchRest, firstPaint } from "./later";
import { browserMemory } from "./memory";
import { keepForLater } from "./offline";
import { facts, learnFacts } from "./server/facts";
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
  library.shown.value = library.get(browserMemory.recall(SHOWN) ?? "") ?? null;
  library.shown.subscribe(() => {
    browserMemory.remember(SHOWN, library.shown.value?.record.id ?? null);
    show("chat"); // a chosen conversation is meant to be seen
  });
  library.isLoaded.value = true;
  await learnFacts();
  if (facts.value.state !== "outdated") resumeAll();
}

async function goOn(): Promise<void> {
  await firstPaint();
  await fetchRest();
  keepForLater();
}

void start();
