// Answer: a turn that is being written. It belongs to its turn, whatever the page shows meanwhile, and its stream
// outlives the page: the server keeps it under the turn's id.

import { Cell } from "../cell";
import { passOf } from "../drafts/pass";
import type { Passes } from "../drafts/passes";
import { pause } from "../pause";
import type { ChatCompletionChunk, Delta, DraftingAnswer, ErrorAnswer, ProgressAnswer } from "../server/answers";
import { eventsOf } from "../server/events";
import { learnFacts } from "../server/facts";
import { isPassing, post, Refusal, request } from "../server/requests";
import type { ToolCall, Turn } from "./turn";

type Event = Partial<ChatCompletionChunk & ErrorAnswer>;
type Open = () => Promise<Response>;

const SAVE_MS = 1000;
/** Seconds before the server is tried again: after the first failure, the second, and so on; the last goes on. */
const WAITS = [1, 2, 5, 10];
/** A question that a server loses each time may be what ends it. */
const MAX_ASKS = 3;

/** The server has not kept the stream, or what comes next of it. */
class Gone extends Error {
  constructor(readonly keepsEnd: boolean, hasBegun: boolean) {
    const known = hasBegun
      ? "The server no longer keeps this answer; what had come by then is here."
      : "The server has lost this question: ask again.";
    super(keepsEnd ? "The server kept only the end of this answer: ask again." : known);
  }
}

let leaving = false;
addEventListener("pagehide", () => (leaving = true));
addEventListener("pageshow", () => (leaving = false));

export class Answer {
  /** Changes at most once a frame. */
  readonly changes = new Cell(0);
  progress: ProgressAnswer | null = null;
  /** Whether the server is away, or not ready for it. */
  isWaiting = false;
  #abort = new AbortController();
  #stopped = new Promise<void>((resolve) => this.#abort.signal.addEventListener("abort", () => resolve()));
  #savedAt = 0;
  /** The timer of the next save; 0: there is nothing to save. */
  #saver = 0;
  #thinksSince = 0;
  #isTold = true;

  constructor(
    readonly turn: Turn,
    readonly passes: Passes,
    private readonly save: () => void,
  ) {}

  /** Ask for it. Ends when the turn is complete, stopped or failed; never throws. */
  async ask(body: Promise<unknown>): Promise<void> {
    const init = this.#init({ "X-Conversation-Id": this.turn.id });
    const ask = async () => post("v1/chat/completions", await body, init);
    await this.#run(ask, async () => {
      await Promise.race([learnFacts(), this.#stopped]); // it may be another server, or another version of it
      return ask();
    });
  }

  /** Go on reading a stream that was asked for before, or, if it `mayCome`, that another tab may not have asked for
   * yet: then the turn is left as it is. */
  async resume(mayCome: boolean): Promise<void> {
    await this.#run(this.#again, null, mayCome);
  }

  /** End it; what was written stays. */
  stop(): void {
    if (this.turn.state !== "running") return;
    this.#end("stopped");
    this.#abort.abort();
    request(this.#address(), { method: "DELETE", keepalive: true }).catch(() => undefined);
  }

  /** Read to the end, however often the connection is lost; a server that no longer keeps the stream ends it.
   * `askAgain` asks one that has nothing of it, and may never have been asked. */
  async #run(open: Open, askAgain: Open | null, mayCome = false): Promise<void> {
    for (let tries = 0, asks = 1; this.turn.state === "running"; ) {
      const before = this.turn.offset;
      const error = await this.#try(open);
      if (leaving || this.turn.state !== "running") return;
      if (error instanceof Gone && !this.turn.offset && askAgain && asks < MAX_ASKS) {
        open = askAgain;
        asks += 1;
        continue;
      }
      if (error instanceof Gone && !this.turn.offset && mayCome) return;
      if (error && !isPassing(error)) return this.#fail(error);
      if (this.turn.offset > before) tries = 0;
      const seconds = error instanceof Refusal && error.retryAfter;
      if (!seconds) open = this.#again; // else it was refused as it came
      await this.#wait(seconds || WAITS[Math.min(tries++, WAITS.length - 1)]!);
    }
  }

  /** Read a stream to its end, or until this error. */
  async #try(open: Open): Promise<unknown> {
    try {
      await this.#read(await open());
      return null;
    } catch (error) {
      return error;
    }
  }

  async #wait(seconds: number): Promise<void> {
    this.saveRest();
    this.isWaiting = true;
    this.changes.value += 1;
    await Promise.race([pause(1000 * seconds), this.#stopped]);
  }

  #again = async (): Promise<Response> => {
    const { offset } = this.turn;
    try {
      return await request(`${this.#address()}&from=${offset}`, this.#init({}));
    } catch (error) {
      if (!(error instanceof Refusal) || ![400, 404].includes(error.status)) throw error;
      throw new Gone(error.status === 400, offset > 0);
    }
  };

  #address(): string {
    return `v1/stream?conv_id=${this.turn.id}`;
  }

  #init(headers: Record<string, string>): RequestInit {
    return { headers, signal: this.#abort.signal };
  }

  async #read(response: Response): Promise<void> {
    this.isWaiting = false;
    this.#tell();
    for await (const { data, end } of eventsOf(response.body!, this.turn.offset)) {
      if (this.turn.state !== "running") return;
      if (data === "[DONE]") return this.#end("done");
      const event = JSON.parse(data) as Event;
      if (event.error?.code === "cancelled") return this.#end("stopped"); // by another tab, say
      if (event.error) throw new Refusal(500, event.error.message, null);
      this.#take(event);
      this.turn.offset = end;
      this.#tell();
      this.#saveNowAndThen();
    }
  }

  #take(event: Event): void {
    const turn = this.turn;
    const choice = event.choices?.[0];
    if (event.prompt_progress) this.progress = event.prompt_progress;
    if (choice?.delta) this.#takeDelta(choice.delta);
    turn.finish = choice?.finish_reason ?? turn.finish;
    turn.timings = event.timings ?? turn.timings;
    if (event.dflash) this.#takeDrafting(event.dflash);
  }

  #takeDrafting({ pass, ...sums }: DraftingAnswer): void {
    if (pass) {
      this.passes.add(passOf(pass, this.turn.timings?.predicted_ms ?? 0));
      this.turn.hasPasses = true;
    }
    if ("acceptance_length" in sums) this.turn.drafting = sums;
  }

  #takeDelta(delta: Delta): void {
    const turn = this.turn;
    if (delta.reasoning_content) {
      this.#thinksSince ||= Date.now() - turn.thoughtMs;
      turn.reasoning += delta.reasoning_content;
      turn.thoughtMs = Date.now() - this.#thinksSince;
    }
    if (delta.content) turn.content += delta.content;
    for (const { index, id, function: called } of delta.tool_calls ?? []) {
      const call: ToolCall = (turn.toolCalls[index] ??= { id: "", name: "", arguments: "" });
      call.id ||= id ?? "";
      call.name ||= called?.name ?? "";
      call.arguments += called?.arguments ?? "";
    }
  }

  #fail(error: unknown): void {
    this.turn.error = error instanceof Error ? error.message : String(error);
    this.#end(error instanceof Gone && error.keepsEnd ? "stopped" : "failed");
  }

  #end(state: Turn["state"]): void {
    this.turn.state = state;
    this.progress = null;
    this.#saveNow();
    this.changes.value += 1;
  }

  #tell(): void {
    if (!this.#isTold) return;
    this.#isTold = false;
    const tell = () => {
      this.#isTold = true;
      this.changes.value += 1;
    };
    // A hidden page has no frames.
    if (document.hidden) setTimeout(tell, 250);
    else requestAnimationFrame(tell);
  }

  #saveNowAndThen(): void {
    const wait = this.#savedAt + SAVE_MS - Date.now();
    if (wait <= 0) this.#saveNow();
    else this.#saver ||= window.setTimeout(() => this.saveRest(), wait);
  }

  /** Save what came since the last save: it may be long until more comes. */
  saveRest(): void {
    if (this.#saver && this.turn.state === "running") this.#saveNow();
  }

  #saveNow(): void {
    clearTimeout(this.#saver);
    this.#saver = 0;
    this.#savedAt = Date.now();
    this.save();
  }
}
