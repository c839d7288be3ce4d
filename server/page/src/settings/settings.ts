// Settings: what requests say beyond the conversation. What is not set is the server's own default.

import { Cell } from "../cell";
import { browserMemory } from "../memory";

export interface Group {
  title: string;
  note?: string;
  names: string[];
}

/** The fields that can be set, as docs/fields.md names them. Types, ranges and texts come from the server. */
export const GROUPS: Group[] = [
  { title: "Answer", names: ["max_tokens", "seed", "stop", "ignore_eos"] },
  {
    title: "Thinking",
    names: ["enable_thinking", "reasoning_effort", "reasoning_budget_tokens", "reasoning_budget_message",
      "chat_template_kwargs"],
  },
  {
    title: "Drafting",
    note: "How the answer is drafted. The text stays the same.",
    names: ["draft", "budget", "lookup", "speculative.n_max", "accept"],
  },
  {
    title: "Sampling",
    names: ["temperature", "top_k", "top_p", "min_p", "typical_p", "top_n_sigma", "min_keep", "samplers"],
  },
  {
    title: "Penalties",
    names: ["repeat_penalty", "repeat_last_n", "frequency_penalty", "presence_penalty", "logit_bias"],
  },
  {
    title: "DRY",
    names: ["dry_multiplier", "dry_base", "dry_allowed_length", "dry_penalty_last_n", "dry_sequence_breakers"],
  },
  {
    title: "Dynamic temperature, XTC, Mirostat, adaptive",
    names: [
      "dynatemp_range", "dynatemp_exponent", "xtc_probability", "xtc_threshold", "mirostat", "mirostat_tau",
      "mirostat_eta", "adaptive_target", "adaptive_decay",
    ],
  },
  { title: "Form", names: ["grammar", "json_schema", "tools", "tool_choice"] },
];

export type Theme = "auto" | "light" | "dark";

type Values = Record<string, unknown>;

const FIELDS = "fields", SYSTEM = "system", THEME = "theme", DRAFTS = "drafts";

/** llama.cpp's LLAMA_DEFAULT_SEED. */
export const RANDOM_SEED = 0xffffffff;

/** The drafting fields that are at hand while drafts are shown. */
export const SWITCHES = ["draft", "budget", "lookup"];

/** The fields that the user has set. */
export const values = new Cell<Values>(recalledValues());
export const theme = new Cell<Theme>((browserMemory.recall(THEME) as Theme | null) ?? "auto");
/** Whether requests ask for what the passes did. */
export const showsDrafts = new Cell(browserMemory.recall(DRAFTS) === "shown");

export function chosenFields(): Values {
  return { ...values.value };
}

/** undefined: the server's default. */
export function setField(name: string, value: unknown): void {
  const { [name]: _, ...others } = recalledValues(); // another tab may have set them
  values.value = value === undefined ? others : { ...others, [name]: value };
  browserMemory.remember(FIELDS, JSON.stringify(values.value));
}

export function resetFields(): void {
  values.value = {};
  browserMemory.remember(FIELDS, null);
}

export function systemMessage(): string {
  return browserMemory.recall(SYSTEM) ?? "";
}

export function setSystemMessage(text: string): void {
  browserMemory.remember(SYSTEM, text.trim() ? text : null);
}

export function setShowsDrafts(shown: boolean): void {
  showsDrafts.value = shown;
  browserMemory.remember(DRAFTS, shown ? "shown" : null);
}

export function setTheme(chosen: Theme): void {
  theme.value = chosen;
  browserMemory.remember(THEME, chosen);
  applyTheme();
}

export function applyTheme(): void {
  document.documentElement.dataset["theme"] = theme.value;
  // The frame of the app's window.
  for (const meta of document.querySelectorAll<HTMLMetaElement>('meta[name="theme-color"]')) {
    const own = meta.dataset["theme"];
    meta.media = theme.value === "auto" ? `(prefers-color-scheme: ${own})` : theme.value === own ? "all" : "not all";
  }
}

function recalledValues(): Values {
  try {
    const known = new Set(GROUPS.flatMap((group) => group.names));
    const kept = Object.entries(JSON.parse(browserMemory.recall(FIELDS) ?? "{}") as Values);
    return Object.fromEntries(kept.filter(([name]) => known.has(name)));
  } catch {
    return {};
  }
}
