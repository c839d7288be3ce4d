// The passes of a turn: a running answer has them at hand, those of others are read when they are looked at.

import { useEffect, useState } from "preact/hooks";
import type { Answer } from "../../chat/answer";
import { library } from "../../chat/chat";
import type { Turn } from "../../chat/turn";
import type { Passes } from "../../drafts/passes";

export function usePasses(turn: Turn, answer: Answer | null): Passes | null {
  const [known, setKnown] = useState<Passes | null>(null);
  useEffect(() => {
    if (!turn.hasPasses || known) return;
    let isWanted = true;
    void library.passesOf(turn).then((passes) => isWanted && setKnown(passes));
    return () => void (isWanted = false);
  }, [turn, turn.hasPasses]);
  const passes = known ?? answer?.passes;
  return passes?.length ? passes : null;
}
