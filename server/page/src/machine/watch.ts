// Watches the machine: asks the server repeatedly, but only while somebody looks.

import { Cell } from "../cell";
import { props } from "../server/facts";
import { chosen } from "../server/models";
import { getJson, Refusal } from "../server/requests";
import { History } from "./history";
import type { Computer, Machine, RouterMachine } from "../server/answers";

export type Seen =
  | { state: "waiting" }
  | { state: "told"; machine: Machine; history: History }
  | { state: "unloaded"; model: string; status: string; computer: Computer }
  | { state: "refused"; message: string };

const BUSY_MS = 1000;
const IDLE_MS = 2000;
const GONE_MS = 4000;

export const seen = new Cell<Seen>({ state: "waiting" });
/** Why what is shown is out of date; empty: it is not. */
export const trouble = new Cell("");

let history = new History();
let model = "";

/** Look until the returned function is called. */
export function watch(): () => void {
  let timer = 0;
  let isOver = false;
  let isAsking = false;
  const look = async () => {
    clearTimeout(timer);
    if (isOver || isAsking || document.hidden) return;
    isAsking = true;
    const pause = await lookOnce();
    isAsking = false;
    if (!isOver && pause) timer = window.setTimeout(() => void look(), pause);
  };
  const onChange = () => void look();
  document.addEventListener("visibilitychange", onChange);
  void look();
  return () => {
    isOver = true;
    clearTimeout(timer);
    document.removeEventListener("visibilitychange", onChange);
  };
}

/** Milliseconds until the next request is worth it; 0: none is. */
async function lookOnce(): Promise<number> {
  try {
    const told = props()?.role === "router" ? await fromRouter() : await fromServer();
    trouble.value = "";
    seen.value = told;
    return told.state === "told" && told.machine.throughput?.running ? BUSY_MS : IDLE_MS;
  } catch (error) {
    if (!(error instanceof Refusal)) trouble.value = "The server does not answer: these figures are old.";
    else if (error.status < 500) seen.value = { state: "refused", message: error.message };
    else trouble.value = error.message;
    return error instanceof Refusal && error.status === 501 ? 0 : GONE_MS;
  }
}

async function fromServer(name = ""): Promise<Seen> {
  if (name !== model) {
    model = name;
    history = new History();
  }
  const of = name ? `&autoload=0&model=${encodeURIComponent(name)}` : "";
  const machine = await getJson<Machine>(`machine?since=${history.next}${of}`);
  if (machine.throughput) history.add(machine.throughput);
  return { state: "told", machine, history };
}

/** Looking at a model must not load it. */
async function fromRouter(): Promise<Seen> {
  const name = chosen.value;
  const { computer, models } = await getJson<RouterMachine>("machine");
  const status = models.find((one) => one.id === name)?.status ?? "unloaded";
  if (status === "loaded" || status === "sleeping") return fromServer(name);
  return { state: "unloaded", model: name, status, computer };
}
