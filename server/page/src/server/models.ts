// The models of a router (docs/serving.md, "Several models"), and the one that is asked next. A server of one model has
// no list.

import { Cell } from "../cell";
import { browserMemory } from "../memory";
import type { RouterModel, RouterModels } from "./answers";
import { getJson } from "./requests";

const NAME = "model";

export const models = new Cell<string[]>([]);
export const chosen = new Cell("");

export async function learnModels(): Promise<void> {
  const { data } = await getJson<RouterModels>("v1/models");
  const names = data.map((model) => model.id);
  const last = chosen.value || (browserMemory.recall(NAME) ?? "");
  chosen.value = names.includes(last) ? last : (names[0] ?? "");
  models.value = names;
}

/** The server is no router, or not any more. */
export function forgetModels(): void {
  if (!models.value.length) return;
  chosen.value = "";
  models.value = [];
}

export function choose(name: string): void {
  chosen.value = name;
  browserMemory.remember(NAME, name);
}

/** Looking at a model must not load it. */
export async function isLoaded(name: string): Promise<boolean> {
  return (await entryOf(name)).status.value === "loaded";
}

/** What a model reads, as far as it is known before it is loaded: text, image, audio. */
export async function inputsOf(name: string): Promise<string[]> {
  return (await entryOf(name)).architecture.input_modalities;
}

function entryOf(name: string): Promise<RouterModel> {
  return getJson<RouterModel>(`v1/models/${name.split("/").map(encodeURIComponent).join("/")}`);
}
