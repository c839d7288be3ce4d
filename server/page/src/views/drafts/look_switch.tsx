// How an answer is shown: as text, or by its tokens.

export type AnswerLook = "text" | "tokens";

export function LookSwitch({ look, onChange }: { look: AnswerLook; onChange: (look: AnswerLook) => void }) {
  return (
    <span class="look-switch" role="group" aria-label="Show the answer as">
      <button type="button" aria-pressed={look === "text"} onClick={() => onChange("text")}>Text</button>
      <button type="button" aria-pressed={look === "tokens"} onClick={() => onChange("tokens")}>Tokens</button>
    </span>
  );
}
