// History: the seconds that the server reported, without gaps.

import type { LastSeconds, ThroughputSecond } from "../server/answers";

const LEAST_WINDOW = 120;
const IDLE: Omit<ThroughputSecond, "t"> = {
  tokens: 0,
  prompt_tokens: 0,
  passes: 0,
  draft_tokens: 0,
  accepted: 0,
  busy: 0,
  running: 0,
  waiting: 0,
};

export class History {
  now = 0;
  #kept = 0;
  #seconds = new Map<number, ThroughputSecond>();

  /** The first second that is not final: the last one reported may have gone on. */
  get next(): number {
    return Math.max(...this.#seconds.keys(), 0);
  }

  add(told: LastSeconds): void {
    if (told.now < this.now) this.#seconds.clear(); // the model was loaded again
    this.now = told.now;
    this.#kept = told.kept;
    for (const second of told.seconds) this.#seconds.set(second.t, second);
    for (const t of this.#seconds.keys()) if (t <= this.now - told.kept) this.#seconds.delete(t);
  }

  /** How many seconds are shown: all that are kept, or fewer soon after the start. */
  get window(): number {
    return Math.min(this.#kept, Math.max(LEAST_WINDOW, Math.ceil(this.now)));
  }

  /** Every complete second of the window. */
  get all(): ThroughputSecond[] {
    const end = Math.floor(this.now);
    const start = Math.max(end - this.window, 0);
    return Array.from({ length: end - start }, (_, index) => this.at(start + index));
  }

  at(t: number): ThroughputSecond {
    return this.#seconds.get(t) ?? { t, ...IDLE };
  }

  /** The sum of the last complete seconds. */
  last(count: number): ThroughputSecond {
    const sum = { t: Math.floor(this.now), ...IDLE };
    for (const second of this.all.slice(-count)) {
      for (const name of Object.keys(IDLE) as (keyof typeof IDLE)[]) sum[name] += second[name];
    }
    return sum;
  }
}

/** Tokens per pass; null if there was no pass. */
export function acceptanceLength({ passes, accepted }: Pick<ThroughputSecond, "passes" | "accepted">): number | null {
  return passes > 0 ? 1 + accepted / passes : null;
}
