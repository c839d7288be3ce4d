// A picture as large as the window allows, and its neighbours.

import { useState } from "preact/hooks";
import type { Medium } from "../chat/turn";
import { Dialog } from "./dialog";
import { IconButton } from "./icon";
import { useMediumUrl } from "./medium_url";

interface Props {
  conversation: string;
  pictures: Medium[];
  /** The place in the list of the one that is shown first. */
  first: number;
  onClose: () => void;
}

export function PictureDialog({ conversation, pictures, first, onClose }: Props) {
  const [at, setAt] = useState(first);
  const last = pictures.length - 1;
  const picture = pictures[at]!;
  const { name, width, height, size } = picture;
  const go = (step: number) => setAt(Math.max(0, Math.min(last, at + step)));
  const onKeyDown = (event: KeyboardEvent) => {
    if (event.key === "ArrowLeft") go(-1);
    else if (event.key === "ArrowRight") go(1);
  };
  return (
    <Dialog title={name} class="picture-dialog" onClose={onClose} onKeyDown={onKeyDown}>
      <Enlarged key={picture.id} conversation={conversation} picture={picture} />
      <footer>
        {last > 0 && <IconButton icon="left" label="Previous picture" disabled={at === 0} onClick={() => go(-1)} />}
        {last > 0 && <IconButton icon="right" label="Next picture" disabled={at === last} onClick={() => go(1)} />}
        <span>
          {last > 0 && `${at + 1} / ${last + 1}, `}{width} × {height}, {Math.ceil(size / 1024).toLocaleString("en")} KiB
        </span>
      </footer>
    </Dialog>
  );
}

function Enlarged({ conversation, picture }: { conversation: string; picture: Medium }) {
  const url = useMediumUrl(conversation, picture);
  return <img src={url ?? undefined} alt={picture.name} width={picture.width} height={picture.height} />;
}
