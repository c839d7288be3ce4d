// Trial: the proof of an answer. The same request runs again with drafting off and the same seed. Two at once would
// slow each other down, so the plain answer runs alone, beside a replay of the drafted one by the times of its passes.

import { Cell } from "../cell";
import { type Difference, firstDifference } from "../drafts/difference";
import { Passes } from "../drafts/passes";
import { Answer } from "./answer";
import type { Conversation } from "./conversation";
import { askedPlain, chatRequest, isKnownSeed, type ReadMedium } from "./request";
import { newTurn, type Proof, type Turn } from "./turn";

export class Trial {
  /** Changes at each frame while the clocks run. */
  readonly changes = new Cell(0);
  readonly plain: Answer;
  difference: Difference | null = null;
  #startedAt = 0;

  constructor(
    private readonly conversation: Conversation,
    readonly drafted: Turn,
    readonly passes: Passes,
    private readonly read: ReadMedium,
  ) {
    const { conversation: id, parent } = drafted;
    const turn = newTurn({ conversation: id, parent, role: "assistant", state: "running" });
    this.plain = new Answer(turn, new Passes(), () => undefined);
  }

  get isRunning(): boolean {
    return this.plain.turn.state === "running" || this.playedMs() < this.draftedMs();
  }

  /** Run it and return the result; null if it did not finish. */
  async run(): Promise<Proof | null> {
    const stop = this.#runClocks();
    try {
      await this.plain.ask(this.#request());
      if (this.plain.turn.state !== "done") return null;
      this.difference = firstDifference(this.passes.text(), this.plain.passes.text());
      // Plain decoding ended where the user stopped the answer.
      const endsAlike = this.drafted.state === "stopped" || this.plain.turn.finish === this.drafted.finish;
      const isSame = this.difference === null && endsAlike;
      const tokens = this.passes.tokens;
      return { isSame, tokens, draftedMs: this.draftedMs(), plainMs: this.plainMs() };
    } finally {
      await this.#played();
      stop();
      this.changes.value += 1;
    }
  }

  stop(): void {
    this.plain.stop();
    this.#startedAt = -Infinity; // the replay is over
  }

  /** Milliseconds of writing, by the server's clock. */
  draftedMs(): number {
    return this.drafted.timings?.predicted_ms ?? 0;
  }

  plainMs(): number {
    return this.plain.turn.timings?.predicted_ms ?? 0;
  }

  /** How far the replay is. It begins with the plain answer's first token. */
  playedMs(): number {
    return this.#startedAt === 0 ? 0 : Math.min(this.draftedMs(), performance.now() - this.#startedAt);
  }

  /** The drafted passes that have been played. */
  playedPasses(): number {
    const ms = this.playedMs();
    if (ms >= this.draftedMs()) return this.#startedAt === 0 ? 0 : this.passes.length;
    const next = this.passes.list.findIndex((pass) => pass.at > ms);
    return next < 0 ? this.passes.length : next;
  }

  async #request(): Promise<Record<string, unknown>> {
    const { parent, asked } = this.drafted;
    const body = await chatRequest(this.conversation.path(parent), askedPlain(asked!), this.read);
    // A stopped answer is compared up to its end.
    return this.drafted.state === "done" ? body : { ...body, max_tokens: this.passes.tokens };
  }

  #runClocks(): () => void {
    let frame = 0;
    const tick = () => {
      if (this.plain.passes.length && this.#startedAt === 0) this.#startedAt = performance.now();
      this.changes.value += 1;
      frame = requestAnimationFrame(tick);
    };
    frame = requestAnimationFrame(tick);
    return () => cancelAnimationFrame(frame);
  }

  /** The replay may take longer than the plain answer did. */
  async #played(): Promise<void> {
    while (this.plain.turn.state === "done" && this.playedMs() < this.draftedMs()) {
      await new Promise((resolve) => setTimeout(resolve, 20));
    }
  }
}

/** Whether this answer can be proved: its request must be known, with its seed, and its raw text. */
export function canBeProved(turn: Turn, passes: Passes | null): boolean {
  const isComplete = turn.state === "done" || (turn.state === "stopped" && !!passes?.tokens);
  return isComplete && passes?.list[0]?.number === 0 && isKnownSeed(turn.asked?.fields["seed"]);
}
