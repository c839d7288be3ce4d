// The proof: the drafted answer and the plain one side by side, and whether they are the same.

import { useEffect, useState } from "preact/hooks";
import { useCell } from "../../cell";
import { library } from "../../chat/chat";
import type { Conversation } from "../../chat/conversation";
import { Trial } from "../../chat/trial";
import type { Proof, Turn } from "../../chat/turn";
import type { Difference } from "../../drafts/difference";
import type { Passes } from "../../drafts/passes";
import { plural, visible } from "../../drafts/words";
import { propsOf } from "../../server/facts";
import { Dialog } from "../dialog";
import { ProofText } from "./proof_text";

interface Props {
  conversation: Conversation;
  turn: Turn;
  passes: Passes;
  onClose: () => void;
}

export function ProofDialog({ conversation, turn, passes, onClose }: Props) {
  const [trial] = useState(() => new Trial(conversation, turn, passes, library.bytesOf));
  const [proof, setProof] = useState<Proof | null>(null);
  useCell(trial.changes);
  useEffect(() => {
    void trial.run().then((result) => {
      if (!result) return;
      setProof(result);
      turn.proof = result;
      void library.saveTurn(turn);
      conversation.touch();
    });
    return () => trial.stop();
  }, [trial]);
  const { plain } = trial;
  const played = trial.playedPasses();
  return (
    <Dialog title="The proof" class="proof-dialog" onClose={onClose}>
      <div class="proof-body">
        <p class="note">
          The same request again with drafting off and the same seed. It runs alone, as two at once would slow each other;
          the drafted answer is played again beside it, from the times of its passes. Both clocks count the writing, not
          the reading of the prompt.
        </p>
        <div class="proof-sides">
          <Side
            name="with drafts"
            ms={trial.playedMs()}
            tokens={tokensOf(passes, played)}
            isDone={played === passes.length}
          >
            <ProofText passes={passes} count={played} label="With drafts" />
          </Side>
          <Side name="plain" ms={trial.plainMs()} tokens={plain.passes.tokens} isDone={plain.turn.state !== "running"}>
            <ProofText passes={plain.passes} count={plain.passes.length} label="Plain" />
          </Side>
        </div>
        <div role="status" class="verdict">
          {plain.turn.state === "failed" && <p class="error">{plain.turn.error}</p>}
          {proof && <Verdict proof={proof} turn={turn} plain={plain.turn} difference={trial.difference} />}
        </div>
      </div>
    </Dialog>
  );
}

interface SideProps {
  name: string;
  ms: number;
  tokens: number;
  isDone: boolean;
  children: preact.ComponentChildren;
}

function Side({ name, ms, tokens, isDone, children }: SideProps) {
  return (
    <section class={isDone ? "side done" : "side"} aria-label={name}>
      <header>
        <h3>{name}</h3>
        <span class="clock">{(ms / 1000).toFixed(2)} s</span>
        <small>{plural(tokens, "token")}{ms > 0 && `, ${((1000 * tokens) / ms).toFixed(1)} tok/s`}</small>
      </header>
      {children}
    </section>
  );
}

function tokensOf(passes: Passes, count: number): number {
  return passes.list.slice(0, count).reduce((sum, pass) => sum + pass.texts.length, 0);
}

interface VerdictProps {
  proof: Proof;
  turn: Turn;
  plain: Turn;
  difference: Difference | null;
}

function Verdict({ proof, turn, plain, difference }: VerdictProps) {
  const { tokens, draftedMs, plainMs } = proof;
  const times = `${(draftedMs / 1000).toFixed(2)} s with drafts, ${(plainMs / 1000).toFixed(2)} s plain`;
  if (proof.isSame) {
    return (
      <p class="same">
        <b>Identical.</b> {plural(tokens, "token")}: {times}; <b>{(plainMs / draftedMs).toFixed(2)}×</b> as fast.
      </p>
    );
  }
  return (
    <div class="different">
      <p><b>Not the same.</b> {times}.</p>
      {difference ? (
        <Found difference={difference} />
      ) : (
        <p>The texts are; the ends differ: {turn.finish}, and {plain.finish} plain.</p>
      )}
      <Reason turn={turn} />
    </div>
  );
}

function Found({ difference: { before, one, other, at } }: { difference: Difference }) {
  return (
    <dl class="difference">
      <dt>with drafts, from character {at + 1}</dt>
      <dd>{visible(before)}<ins>{one ? visible(one) : "(the end)"}</ins></dd>
      <dt>plain</dt>
      <dd>{visible(before)}<ins>{other ? visible(other) : "(the end)"}</ins></dd>
    </dl>
  );
}

/** Why they may differ, by the server. */
function Reason({ turn }: { turn: Turn }) {
  const [reason, setReason] = useState<string | null>(null);
  useEffect(() => {
    if (turn.asked?.fields["accept"] === "block") {
      setReason("Block verification (accept: block) keeps the distribution, not the text that a seed gives.");
      return;
    }
    const tell = (why = "") =>
      setReason(why ? `The server promises none here: ${why}.` : "The server names no reason for it.");
    propsOf(turn.asked?.model ?? "").then((props) => tell(props?.dflash?.not_bit_exact), () => undefined);
  }, [turn]);
  return reason === null ? null : <p>{reason}</p>;
}
