// The start of the page.

import "katex/dist/katex.min.css";
import "./styles/page.css";

import { render } from "preact";
import { library, resumeAll } from "./chat/chat";
import { recall, remember } from "./memory";
import { learnFacts } from "./server/facts";
import { applyTheme } from "./settings/settings";
import { show } from "./shown_view";
import { App } from "./views/app";

const SHOWN = "shown";

async function start(): Promise<void> {
  applyTheme();
  await library.load();
  library.shown.value = library.get(recall(SHOWN) ?? "") ?? null;
  library.shown.subscribe(() => {
    remember(SHOWN, library.shown.value?.record.id ?? null);
    show("chat"); // a chosen conversation is meant to be seen
  });
  render(<App />, document.body);
  await learnFacts();
  resumeAll();
}

void start();
