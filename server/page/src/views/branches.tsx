// Chooses between several questions or answers in the same place.

import { showBranch } from "../chat/chat";
import type { Conversation } from "../chat/conversation";
import type { Turn } from "../chat/turn";
import { buttonOf, focusSoon } from "./focus";
import { IconButton } from "./icon";

const PREVIOUS = "Previous branch", NEXT = "Next branch";

export function Branches({ conversation, turn }: { conversation: Conversation; turn: Turn }) {
  const siblings = conversation.children(turn.parent);
  if (siblings.length < 2) return null;
  const at = siblings.indexOf(turn);
  const go = (to: number, ...labels: string[]) => {
    const shown = siblings[to]!;
    void showBranch(conversation, shown);
    focusSoon(() => buttonOf(shown, ...labels)); // at the last branch the same button is disabled
  };
  return (
    <span class="branches">
      <IconButton icon="left" label={PREVIOUS} disabled={at === 0} onClick={() => go(at - 1, PREVIOUS, NEXT)} />
      <span>{at + 1} / {siblings.length}</span>
      <IconButton
        icon="right"
        label={NEXT}
        disabled={at === siblings.length - 1}
        onClick={() => go(at + 1, NEXT, PREVIOUS)}
      />
    </span>
  );
}
