// One turn: a question, an answer, or the result of a tool.

import { useState } from "preact/hooks";
import { useCell } from "../cell";
import { regenerate, running } from "../chat/chat";
import type { Conversation } from "../chat/conversation";
import { canBeProved } from "../chat/trial";
import { isMedium, isTextFile, type Turn } from "../chat/turn";
import { copyText } from "../clipboard";
import { showsDrafts } from "../settings/settings";
import { Branches } from "./branches";
import { DraftPanel } from "./drafts/draft_panel";
import { type AnswerLook, LookSwitch } from "./drafts/look_switch";
import { ProofDialog } from "./drafts/proof_dialog";
import { TokenView } from "./drafts/token_view";
import { TreeDialog } from "./drafts/tree_dialog";
import { usePasses } from "./drafts/use_passes";
import { Editor } from "./editor";
import { Figures, Waiting } from "./figures";
import { buttonOf, focusMessage, focusSoon, idOf } from "./focus";
import { Icon, IconButton } from "./icon";
import { Markdown } from "./markdown";
import { Media } from "./media";
import { notify } from "./notice";
import { Thoughts } from "./thoughts";
import { ToolCalls } from "./tool_calls";

const EDIT = "Edit question"; // a shortcut knows it, too

interface Props {
  conversation: Conversation;
  turn: Turn;
  isLast: boolean;
}

export function TurnView(props: Props) {
  if (props.turn.role === "user") return <Question {...props} />;
  if (props.turn.role === "tool") return <ToolResult turn={props.turn} />;
  return <AnswerView {...props} />;
}

function Question({ conversation, turn }: Props) {
  const [isEdited, setEdited] = useState(false);
  const close = () => {
    setEdited(false);
    focusSoon(() => buttonOf(turn, EDIT));
  };
  if (isEdited) return <Editor conversation={conversation} turn={turn} onClose={close} />;
  return (
    <article class="turn question" aria-label="You" id={idOf(turn)}>
      <Media conversation={turn.conversation} media={turn.files.filter(isMedium)} />
      {turn.files.filter(isTextFile).map((file) => (
        <details class="file" key={file.name}>
          <summary><Icon name="file" />{file.name}</summary>
          <pre tabIndex={0}>{file.text}</pre>
        </details>
      ))}
      {turn.content && <div class="bubble" dir="auto">{turn.content}</div>}
      <footer>
        <Branches conversation={conversation} turn={turn} />
        <IconButton icon="copy" label="Copy question" onClick={() => void copy(turn.content)} />
        <IconButton icon="edit" label={EDIT} onClick={() => setEdited(true)} />
      </footer>
    </article>
  );
}

function ToolResult({ turn }: { turn: Turn }) {
  return (
    <article class="turn tool-result" aria-label="Tool">
      <details>
        <summary>Result of the tool</summary>
        <pre tabIndex={0}>{turn.content}</pre>
      </details>
    </article>
  );
}

function AnswerView({ conversation, turn, isLast }: Props) {
  const answer = useCell(running).get(turn.id) ?? null;
  useCell(answer?.changes);
  const passes = usePasses(turn, answer);
  const isShown = useCell(showsDrafts);
  const [view, setView] = useState<AnswerLook | null>(null);
  const [opened, setOpened] = useState<number | null>(null);
  const [isProving, setProving] = useState(false);
  const isRunning = turn.state === "running";
  const hasText = !!(turn.content || turn.reasoning || turn.toolCalls.length || passes);
  const look: AnswerLook = view ?? (isShown ? "tokens" : "text");
  const hasPanel = !!passes && (isShown || look === "tokens");
  return (
    <article class={`turn answer ${turn.state}`} aria-label="Answer" aria-busy={isRunning} id={idOf(turn)}>
      {passes && look === "tokens" ? (
        <TokenView passes={passes} count={passes.length} isRunning={isRunning} label="The answer" onOpen={setOpened} />
      ) : (
        <>
          <Thoughts turn={turn} />
          {turn.content && <Markdown text={turn.content} isDone={!isRunning} />}
        </>
      )}
      <ToolCalls conversation={conversation} turn={turn} isLast={isLast} />
      {isRunning && answer && <Waiting answer={answer} hasText={hasText} />}
      <EndNote turn={turn} />
      {hasPanel && <DraftPanel turn={turn} passes={passes!} onOpen={setOpened} />}
      <footer>
        <Branches conversation={conversation} turn={turn} />
        {!isRunning && <AnswerButtons conversation={conversation} turn={turn} />}
        {canBeProved(turn, passes) && (
          <button type="button" class="prove" onClick={() => setProving(true)}><Icon name="proof" />Prove it</button>
        )}
        {passes && <LookSwitch look={look} onChange={setView} />}
        <Figures turn={turn} hasRates={!hasPanel} />
      </footer>
      {opened !== null && <TreeDialog passes={passes!} first={opened} onClose={() => setOpened(null)} />}
      {isProving && (
        <ProofDialog conversation={conversation} turn={turn} passes={passes!} onClose={() => setProving(false)} />
      )}
    </article>
  );
}

function AnswerButtons({ conversation, turn }: Omit<Props, "isLast">) {
  const answerAgain = () => {
    void regenerate(conversation, turn);
    focusMessage();
  };
  return (
    <>
      {turn.content && <IconButton icon="copy" label="Copy answer" onClick={() => void copy(turn.content)} />}
      <IconButton icon="redo" label="Answer again" onClick={answerAgain} />
    </>
  );
}

/** Why an answer ended, unless the model ended it. */
function EndNote({ turn }: { turn: Turn }) {
  if (turn.state === "failed") return <p class="error" role="alert">{turn.error}</p>;
  if (turn.state === "stopped") return <p class="end-note">{turn.error || "Stopped."}</p>;
  if (turn.finish === "length") return <p class="end-note">The answer reached its greatest length.</p>;
  return null;
}

async function copy(text: string): Promise<void> {
  notify((await copyText(text)) ? "Copied." : "The browser does not lend its clipboard.");
}
