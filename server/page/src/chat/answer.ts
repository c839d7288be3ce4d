// Answer: a turn that is being written. It belongs to its turn, whatever the page shows meanwhile, and its stream
// outlives the page: the server keeps it under the turn's id.

import { Cell } from "../cell";
import { passOf } from "../drafts/pass";
import type { Passes } from "../drafts/passes";
import type { ChatCompletionChunk, Delta, DraftingAnswer, ErrorAnswer, ProgressAnswer } from "../server/answers";
import { eventsOf } from "../server/events";
import { post, Refusal, request } from "../server/requests";
import type { ToolCall, Turn } from "./turn";

type Event = Partial<ChatCompletionChunk & ErrorAnswer>;

const SAVE_MS = 1000;
const RETRY_MS = 1000;
const MAX_RETRIES = 60;

let leaving = false;
addEventListener("pagehide", () => (leaving = true));
addEventListener("pageshow", () => (leaving = false));

export class Answer {
  /** Changes at most once a frame. */
  readonly changes = new Cell(0);
  progress: ProgressAnswer | null = null;
  #abort = new AbortController();
  #savedAt = 0;
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
    await this.#run(async () => post("v1/chat/completions", await body, init));
  }

  /** Go on reading a stream that was asked for before. */
  async resume(): Promise<void> {
    await this.#run(() => this.#again());
  }

  /** End it; what was written stays. */
  stop(): void {
    if (this.turn.state !== "running") return;
    this.#end("stopped");
    this.#abort.abort();
    request(this.#address(), { method: "DELETE", keepalive: true }).catch(() => undefined);
  }

  async #run(open: () => Promise<Response>): Promise<void> {
    for (let tries = 0; this.turn.state === "running"; tries++) {
      const before = this.turn.offset;
      try {
        await this.#read(await open());
        if (this.turn.state !== "running") break;
      } catch (error) {
        if (leaving || this.turn.state !== "running") break;
        if (!isPassing(error)) {
          this.#fail(error);
          break;
        }
      }
      if (this.turn.offset > before) tries = 0;
      if (tries >= MAX_RETRIES) this.#fail(new Error("the connection to the server is lost"));
      await new Promise((resolve) => setTimeout(resolve, RETRY_MS));
      open = () => this.#again();
    }
  }

  #again(): Promise<Response> {
    return request(`${this.#address()}&from=${this.turn.offset}`, this.#init({}));
  }

  #address(): string {
    return `v1/stream?conv_id=${this.turn.id}`;
  }

  #init(headers: Record<string, string>): RequestInit {
    return { headers, signal: this.#abort.signal };
  }

  async #read(response: Response): Promise<void> {
    for await (const { data, end } of eventsOf(response.body!, this.turn.offset)) {
      if (this.turn.state !== "running") return;
      if (data === "[DONE]") return this.#end("done");
      const event = JSON.parse(data) as Event;
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
    if (error instanceof Refusal && error.status === 404) {
      this.turn.error = "The server no longer keeps this answer; what had come by then is here.";
    }
    this.#end("failed");
  }

  #end(state: Turn["state"]): void {
    this.turn.state = state;
    this.progress = null;
    this.save();
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
    if (Date.now() - this.#savedAt < SAVE_MS) return;
    this.#savedAt = Date.now();
    this.save();
  }
}

/** Whether a retry makes sense: after a lost connection, or a stream that has not begun, but not after a refusal. */
function isPassing(error: unknown): boolean {
  return error instanceof TypeError || (error instanceof Refusal && error.status === 503 && /begun/.test(error.message));
}
