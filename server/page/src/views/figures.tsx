// Figures of an answer: how fast it came, how well it was drafted, what it read.

import type { Answer } from "../chat/answer";
import type { Turn } from "../chat/turn";

export function Figures({ turn }: { turn: Turn }) {
  const { timings, drafting } = turn;
  if (!timings) return null;
  const rate = timings.predicted_per_second;
  const length = drafting?.acceptance_length;
  return (
    <span class="figures">
      {Number.isFinite(rate) && <span title="tokens per second">{rate.toFixed(1)} tok/s</span>}
      {length != null && (
        <span title={`acceptance length: tokens per pass of the model${drafting?.reason ? `; ${drafting.reason}` : ""}`}>
          AL {length.toFixed(2)}
        </span>
      )}
      <span title={`in ${seconds(timings.predicted_ms)}`}>{timings.predicted_n} tokens</span>
      <span class="minor" title={`${timings.prompt_n} tokens read in ${seconds(timings.prompt_ms)}`}>
        prompt {timings.prompt_n + (timings.cache_n ?? 0)}
        {!!timings.cache_n && ` (${timings.cache_n} cached)`}
      </span>
    </span>
  );
}

/** How much of the prompt has been read, until the first token. */
export function PromptProgress({ answer }: { answer: Answer }) {
  const { progress } = answer;
  if (!progress) return <p class="waiting"><span class="dots" />waiting for the model</p>;
  const { processed, total, cache } = progress;
  return (
    <div class="waiting">
      <progress value={processed} max={total} aria-label="prompt read" />
      <span>
        reading the prompt: {processed} of {total} tokens{cache > 0 && `, ${cache} from the cache`}
      </span>
    </div>
  );
}

export function seconds(ms: number): string {
  return ms < 10_000 ? `${(ms / 1000).toFixed(1)} s` : `${Math.round(ms / 1000)} s`;
}
