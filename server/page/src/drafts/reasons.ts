// The controller's reasons, with the words of docs/budget.md, and their colours in pictures.

export interface Reason {
  /** A variable of the style sheet, without its dashes. */
  colour: string;
  meaning: string;
}

const REASONS: Record<string, Reason> = {
  "drafting pays": { colour: "pays", meaning: "a block was denoised, and as many nodes verified as pay" },
  "plain decoding is faster": { colour: "plain", meaning: "the drafter rests" },
  "prompt lookup alone": {
    colour: "lookup",
    meaning: "the text repeats itself, or follows a prediction, while the drafter rests or would add too little",
  },
  "plain step to measure": {
    colour: "plain",
    meaning: "drafting wins by little: one plain step, so that its cost is not an old measurement",
  },
  "fixed budget": { colour: "fixed", meaning: "the number of nodes was asked for" },
  "drafting is off": {
    colour: "plain",
    meaning: "asked for, or the answer's last token, or no drafts can be verified",
  },
  "no drafter": { colour: "plain", meaning: "started without one" },
  "the drafter failed": { colour: "wrong", meaning: "its pass failed; the answer goes on plain" },
};

export function reasonOf(name: string): Reason {
  return REASONS[name] ?? { colour: "plain", meaning: "" };
}
