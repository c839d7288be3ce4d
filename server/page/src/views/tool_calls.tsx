// Calls of tools in an answer, and a form for their results: this page runs no tools itself.

import { useState } from "preact/hooks";
import { giveResults } from "../chat/chat";
import type { Conversation } from "../chat/conversation";
import type { ToolCall, Turn } from "../chat/turn";
import { focusMessage } from "./focus";

interface Props {
  conversation: Conversation;
  turn: Turn;
  isLast: boolean;
}

export function ToolCalls({ conversation, turn, isLast }: Props) {
  const [results, setResults] = useState<string[]>([]);
  if (!turn.toolCalls.length) return null;
  const wantsResults = isLast && turn.state === "done";
  const setResult = (index: number, text: string) => {
    const changed = [...results];
    changed[index] = text;
    setResults(changed);
  };
  const submit = (event: Event) => {
    event.preventDefault();
    void giveResults(conversation, turn, results);
    focusMessage();
  };
  return (
    <form class="tool-calls" onSubmit={submit}>
      {turn.toolCalls.map((call, index) => (
        <div class="tool-call" key={index}>
          <details open={wantsResults || turn.state === "running"}>
            <summary>Calls <code>{call.name}</code></summary>
            <pre tabIndex={0}>{indented(call)}</pre>
          </details>
          {wantsResults && (
            <textarea
              rows={2}
              aria-label={`Result of ${call.name}`}
              placeholder={`What ${call.name} says`}
              value={results[index] ?? ""}
              onInput={(event) => setResult(index, event.currentTarget.value)}
            />
          )}
        </div>
      ))}
      {wantsResults && <button type="submit">Send {turn.toolCalls.length > 1 ? "results" : "result"}</button>}
    </form>
  );
}

/** The arguments as JSON on several lines; unchanged while they are incomplete. */
function indented(call: ToolCall): string {
  try {
    return JSON.stringify(JSON.parse(call.arguments), null, 2);
  } catch {
    return call.arguments;
  }
}
