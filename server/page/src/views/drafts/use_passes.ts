// The passes of a turn: an answer that is written has them at hand, others are read when they are looked at.

import { useEffect, useState } from "preact/hooks";
import type { Answer } from "../../chat/answer";
import { library } from "../../chat/chat";
import type { Turn } from "../../chat/turn";
import type { Passes } from "../../drafts/passes";

export function usePasses(turn: Turn, answer: Answer | null): Passes | null {
  const [read, setRead] = useState<Passes | null>(null);
  useEffect(() => {
    if (!turn.hasPasses || answer) return;
    let isWanted = true;
    void library.passesOf(turn).then((passes) => isWanted && setRead(passes));
    return () => void (isWanted = false);
  }, [turn, turn.hasPasses, answer]);
  const passes = answer?.passes ?? read;
  return passes?.length ? passes : null;
}
