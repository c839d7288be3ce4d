// One turn: a question, an answer, or the result of a tool.

import { useLayoutEffect, useRef, useState } from "preact/hooks";
import { useCell } from "../cell";
import { edit, regenerate, running, showBranch } from "../chat/chat";
import type { Conversation } from "../chat/conversation";
import { canBeProved } from "../chat/trial";
import { isMedium, isTextFile, type Turn } from "../chat/turn";
import { copyText } from "../clipboard";
import { showsDrafts } from "../settings/settings";
import { isConverting } from "../shortcuts";
import { AttachedList, useAttached } from "./attached";
import { DraftPanel } from "./drafts/draft_panel";
import { type AnswerLook, LookSwitch } from "./drafts/look_switch";
import { ProofDialog } from "./drafts/proof_dialog";
import { TokenView } from "./drafts/token_view";
import { TreeDialog } from "./drafts/tree_dialog";
import { usePasses } from "./drafts/use_passes";
import { Figures, PromptProgress } from "./figures";
import { Icon, IconButton } from "./icon";
import { Markdown } from "./markdown";
import { Media } from "./media";
import { notify } from "./notice";
import { Thoughts } from "./thoughts";
import { ToolCalls } from "./tool_calls";

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
  if (isEdited) return <Editor conversation={conversation} turn={turn} onClose={() => setEdited(false)} />;
  return (
    <article class="turn question" aria-label="You">
      <Media conversation={turn.conversation} media={turn.files.filter(isMedium)} />
      {turn.files.filter(isTextFile).map((file) => (
        <details class="file" key={file.name}>
          <summary><Icon name="file" />{file.name}</summary>
          <pre tabIndex={0}>{file.text}</pre>
        </details>
      ))}
      {turn.content && <div class="bubble">{turn.content}</div>}
      <footer>
        <Branches conversation={conversation} turn={turn} />
        <IconButton icon="copy" label="Copy question" onClick={() => void copy(turn.content)} />
        <IconButton icon="edit" label="Edit question" onClick={() => setEdited(true)} />
      </footer>
    </article>
  );
}

function Editor({ conversation, turn, onClose }: { conversation: Conversation; turn: Turn; onClose: () => void }) {
  const [text, setText] = useState(turn.content);
  const attached = useAttached(turn.files);
  const { files, reading } = attached;
  const area = useRef<HTMLTextAreaElement>(null);
  useLayoutEffect(() => area.current!.focus(), []);
  const submit = (event?: Event) => {
    event?.preventDefault();
    if (reading || (!text.trim() && !files.length)) return;
    onClose();
    void edit(conversation, turn, text.trim(), files);
  };
  const onKeyDown = (event: KeyboardEvent) => {
    if (isConverting(event)) return;
    if (event.key === "Escape") onClose();
    else if (event.key === "Enter" && !event.shiftKey) submit(event);
    else return;
    event.stopPropagation();
  };
  return (
    <form class="turn editor" onSubmit={submit}>
      <AttachedList attached={attached} conversation={turn.conversation} />
      <textarea
        aria-label="Edited question"
        value={text}
        ref={area}
        onInput={(event) => setText(event.currentTarget.value)}
        onKeyDown={onKeyDown}
        onPaste={attached.onPaste}
      />
      <div class="buttons">
        <button type="button" onClick={onClose}>Cancel</button>
        <button type="submit" class="main" disabled={reading > 0}>Ask again</button>
      </div>
    </form>
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
    <article class={`turn answer ${turn.state}`} aria-label="Answer" aria-busy={isRunning}>
      {passes && look === "tokens" ? (
        <TokenView passes={passes} count={passes.length} isRunning={isRunning} label="The answer" onOpen={setOpened} />
      ) : (
        <>
          <Thoughts turn={turn} />
          {turn.content && <Markdown text={turn.content} isDone={!isRunning} />}
        </>
      )}
      <ToolCalls conversation={conversation} turn={turn} isLast={isLast} />
      {isRunning && answer && !hasText && <PromptProgress answer={answer} />}
      <EndNote turn={turn} />
      {hasPanel && <DraftPanel turn={turn} passes={passes!} onOpen={setOpened} />}
      <footer>
        <Branches conversation={conversation} turn={turn} />
        {!isRunning && (
          <>
            {turn.content && <IconButton icon="copy" label="Copy answer" onClick={() => void copy(turn.content)} />}
            <IconButton icon="redo" label="Answer again" onClick={() => void regenerate(conversation, turn)} />
          </>
        )}
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

/** Why an answer ended, unless the model ended it. */
function EndNote({ turn }: { turn: Turn }) {
  if (turn.state === "failed") return <p class="error" role="alert">{turn.error}</p>;
  if (turn.state === "stopped") return <p class="end-note">Stopped.</p>;
  if (turn.finish === "length") return <p class="end-note">The answer reached its greatest length.</p>;
  return null;
}

/** Chooses between several questions or answers in the same place. */
function Branches({ conversation, turn }: { conversation: Conversation; turn: Turn }) {
  const siblings = conversation.children(turn.parent);
  if (siblings.length < 2) return null;
  const at = siblings.indexOf(turn);
  const go = (step: number) => void showBranch(conversation, siblings[at + step]!);
  return (
    <span class="branches">
      <IconButton icon="left" label="Previous branch" disabled={at === 0} onClick={() => go(-1)} />
      <span>{at + 1} / {siblings.length}</span>
      <IconButton icon="right" label="Next branch" disabled={at === siblings.length - 1} onClick={() => go(1)} />
    </span>
  );
}

async function copy(text: string): Promise<void> {
  notify((await copyText(text)) ? "Copied." : "The browser does not lend its clipboard.");
}
