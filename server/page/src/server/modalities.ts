// What the asked model takes besides text.

import { Cell } from "../cell";
import { facts, props, propsOf } from "./facts";
import { chosen, inputsOf } from "./models";

export interface Modalities {
  vision: boolean;
  audio: boolean;
}

/** null: not known yet. */
export const modalities = new Cell<Modalities | null>(null);

/** Learn it again: a router knows it for sure when it has loaded the model. */
export async function learnModalities(): Promise<void> {
  if (facts.value.state !== "ready") return;
  const model = chosen.value;
  const learnt = await (model ? ofRoutersModel(model) : props()?.modalities);
  if (model !== chosen.value) return; // another one was chosen meanwhile
  modalities.value = learnt ? { vision: !!learnt["vision"], audio: !!learnt["audio"] } : null;
}

async function ofRoutersModel(model: string): Promise<Record<string, boolean> | undefined> {
  try {
    const loaded = await propsOf(model);
    if (loaded) return loaded.modalities;
    const inputs = await inputsOf(model);
    return { vision: inputs.includes("image"), audio: inputs.includes("audio") };
  } catch {
    return undefined; // requests tell what is wrong
  }
}

facts.subscribe(() => void learnModalities());
chosen.subscribe(() => void learnModalities());
