// The drafts view of an answer: its raw text by tokens, and who proposed the one that is pointed at.

import { useLayoutEffect, useRef, useState } from "preact/hooks";
import { putCursor } from "../../drafts/ghost";
import { guessed, ORIGINS, type Pass } from "../../drafts/pass";
import type { Passes } from "../../drafts/passes";
import { placeOf, type TokenPlace, TokenText } from "../../drafts/token_text";
import { drafterWord, originWord, percent, visible } from "../../drafts/words";

interface Props {
  passes: Passes;
  /** How many of them are shown. */
  count: number;
  isRunning: boolean;
  label: string;
  onOpen: (pass: number) => void;
}

interface Pointed extends TokenPlace {
  left: number;
  top: number;
}

const TIP_WIDTH = 260;

export function TokenView({ passes, count, isRunning, label, onOpen }: Props) {
  const root = useRef<HTMLDivElement>(null);
  const text = useRef<TokenText | null>(null);
  const [pointed, setPointed] = useState<Pointed | null>(null);
  useLayoutEffect(() => {
    text.current ??= new TokenText(root.current!);
    text.current.grow(passes.list, count);
    if (isRunning) return putCursor(text.current.lastLine, passes.list[count - 1]);
  }, [passes, count, isRunning]);
  useLayoutEffect(() => light(root.current!, pointed?.pass ?? null), [pointed?.pass]);

  const pointAt = (token: HTMLElement | null) => {
    const place = placeOf(token);
    if (!token || !place) return;
    if (pointed && isAt(token, pointed)) return;
    const left = Math.max(0, Math.min(token.offsetLeft, root.current!.clientWidth - TIP_WIDTH));
    setPointed({ ...place, left, top: token.offsetTop + token.offsetHeight + 4 });
  };
  const move = (event: PointerEvent) => {
    // A resting mouse does not point when keys scroll the text below it.
    if (event.pointerType === "mouse" && (event.movementX || event.movementY)) pointAt(tokenAt(event));
  };
  const leave = (event: PointerEvent) => event.pointerType === "mouse" && !hasFocus(root.current!) && setPointed(null);
  const click = (event: MouseEvent) => pointAt(tokenAt(event));
  const onKeyDown = (event: KeyboardEvent) => {
    if (event.key === "Enter" && pointed) onOpen(pointed.pass);
    else if (event.key === "Escape" && pointed) setPointed(null);
    else {
      const next = neighbour(root.current!, pointed, event.key);
      if (next === undefined) return;
      next?.scrollIntoView({ block: "nearest" });
      pointAt(next);
    }
    event.preventDefault();
    event.stopPropagation();
  };
  return (
    <div class="tokens-place" onPointerLeave={leave}>
      <div
        class="tokens"
        ref={root}
        tabIndex={0}
        role="group"
        aria-roledescription="text by tokens"
        aria-label={`${label}. Arrow keys go from token to token, Enter opens the tree.`}
        onPointerMove={move}
        onClick={click}
        onKeyDown={onKeyDown}
        onBlur={(event) => !(event.relatedTarget as Element | null)?.closest(".token-tip") && setPointed(null)}
      />
      {pointed && <Tip passes={passes} pointed={pointed} onOpen={() => onOpen(pointed.pass)} />}
    </div>
  );
}

function Tip({ passes, pointed, onOpen }: { passes: Passes; pointed: Pointed; onOpen: () => void }) {
  const box = useRef<HTMLDivElement>(null);
  useLayoutEffect(() => {
    box.current!.style.left = `${pointed.left}px`;
    box.current!.style.top = `${pointed.top}px`;
  });
  const pass = passes.list[pointed.pass]!;
  const origin = ORIGINS[pass.origins[pointed.token]!]!;
  const prob = pass.probs[pointed.token]!;
  const depth = pointed.token + 1;
  return (
    <div class="token-tip" role="status" ref={box}>
      <strong class={`swatch-text ${origin}`}>{visible(pass.texts[pointed.token]!, 24)}</strong>
      <span>
        {origin === "target" ? "said by the model itself" : `guessed by the ${originWord(origin)} at depth ${depth}`}
      </span>
      {prob >= 0 && <span>the {drafterWord(pass.origins)} gave it {percent(prob)}</span>}
      <span>pass {pass.number}{whatOf(pass)}</span>
      {pass.tree && <button type="button" onClick={onOpen}>Show its tree</button>}
    </div>
  );
}

function whatOf(pass: Pass): string {
  if (guessed(pass)) return `: guessed ${guessed(pass)}, kept ${pass.accepted}`;
  return pass.number === 0 ? ", the prompt's last" : ", plain";
}

/** Mark the tokens of one pass. */
function light(root: HTMLElement, pass: number | null): void {
  for (const token of root.querySelectorAll(".lit")) token.classList.remove("lit");
  if (pass === null) return;
  for (const token of root.querySelectorAll(`[data-pass="${pass}"]`)) token.classList.add("lit");
}

function tokenAt(event: Event): HTMLElement | null {
  return (event.target as Element).closest<HTMLElement>(".token");
}

function hasFocus(element: HTMLElement): boolean {
  return element === document.activeElement;
}

/** The token that a key leads to; null: there is none; undefined: it is some other key. */
function neighbour(root: HTMLElement, from: TokenPlace | null, key: string): HTMLElement | null | undefined {
  const steps: Record<string, number> = { ArrowRight: 1, ArrowLeft: -1 };
  const ends: Record<string, number> = { Home: 0, End: -1 };
  if (!(key in steps) && !(key in ends)) return undefined;
  const tokens = [...root.querySelectorAll<HTMLElement>(".token")];
  if (key in ends) return tokens.at(ends[key]!) ?? null;
  const at = from ? tokens.findIndex((one) => isAt(one, from)) : -1;
  if (at < 0) return tokens.at(steps[key]! > 0 ? 0 : -1) ?? null;
  return tokens[at + steps[key]!] ?? null;
}

function isAt(element: HTMLElement, { pass, token }: TokenPlace): boolean {
  return element.dataset["pass"] === String(pass) && element.dataset["token"] === String(token);
}
