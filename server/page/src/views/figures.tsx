// Figures of an answer: how fast it came, how well it was drafted, what it read.

import type { Answer } from "../chat/answer";
import type { Proof, Turn } from "../chat/turn";

/** `hasRates`: whether to show rates, which may stand above already. */
export function Figures({ turn, hasRates }: { turn: Turn; hasRates: boolean }) {
  const { timings, drafting } = turn;
  if (!timings) return null;
  const rate = timings.predicted_per_second;
  const length = drafting?.acceptance_length;
  return (
    <span class="figures">
      {hasRates && Number.isFinite(rate) && <span class="rate" title="tokens per second">{rate.toFixed(1)} tok/s</span>}
      {hasRates && length != null && (
        <span title={`acceptance length: tokens per pass of the model${drafting?.reason ? `; ${drafting.reason}` : ""}`}>
          AL {length.toFixed(2)}
        </span>
      )}
      <span title={`in ${seconds(timings.predicted_ms)}`}>{timings.predicted_n} tokens</span>
      {turn.proof && <ProofFigure proof={turn.proof} />}
      <span class="minor" title={`${timings.prompt_n} tokens read in ${seconds(timings.prompt_ms)}`}>
        prompt {timings.prompt_n + (timings.cache_n ?? 0)}
        {!!timings.cache_n && ` (${timings.cache_n} cached)`}
      </span>
    </span>
  );
}

/** The result of its proof. */
function ProofFigure({ proof: { isSame, draftedMs, plainMs } }: { proof: Proof }) {
  if (!isSame) return <span title="plain decoding said something else">not as plain</span>;
  return (
    <span title="plain decoding with the same seed said the same">
      as plain, {(plainMs / draftedMs).toFixed(1)}× as fast
    </span>
  );
}

/** What a running answer waits for. */
export function Waiting({ answer, hasText }: { answer: Answer; hasText: boolean }) {
  if (answer.isWaiting) {
    const what = hasText ? "the connection is lost; trying again" : "waiting for the server";
    return <p class="waiting"><span class="dots" />{what}</p>;
  }
  return hasText ? null : <PromptProgress answer={answer} />;
}

/** How much of the prompt has been read, until the first token. */
function PromptProgress({ answer: { progress } }: { answer: Answer }) {
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
