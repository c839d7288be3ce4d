// The pictures and the audio of a question, as the conversation shows them.

import { useState } from "preact/hooks";
import { isPicture, type Medium } from "../chat/turn";
import { Icon } from "./icon";
import { useMediumUrl } from "./medium_url";
import { PictureDialog } from "./picture_dialog";

interface Props {
  conversation: string;
  media: Medium[];
}

export function Media({ conversation, media }: Props) {
  const [opened, setOpened] = useState<number | null>(null);
  const pictures = media.filter(isPicture);
  const others = media.filter((medium) => !isPicture(medium));
  return (
    <>
      {pictures.length > 0 && (
        <div class={pictures.length > 1 ? "pictures several" : "pictures"}>
          {pictures.map((picture, index) => (
            <Picture key={picture.id} conversation={conversation} picture={picture} onOpen={() => setOpened(index)} />
          ))}
        </div>
      )}
      {others.map((medium) => <Audio key={medium.id} conversation={conversation} medium={medium} />)}
      {opened !== null && (
        <PictureDialog conversation={conversation} pictures={pictures} first={opened} onClose={() => setOpened(null)} />
      )}
    </>
  );
}

function Picture({ conversation, picture, onOpen }: { conversation: string; picture: Medium; onOpen: () => void }) {
  const { name, width, height } = picture;
  const url = useMediumUrl(conversation, picture);
  if (url === "") return <Lost medium={picture} />;
  return (
    <button type="button" class="picture" aria-label={`Enlarge ${name}`} title={name} onClick={onOpen}>
      {/* Its size is known before its bytes are here, so nothing moves when they come. */}
      <img src={url ?? undefined} alt={name} width={width} height={height} />
    </button>
  );
}

function Audio({ conversation, medium }: { conversation: string; medium: Medium }) {
  const url = useMediumUrl(conversation, medium);
  if (url === "") return <Lost medium={medium} />;
  return (
    <figure class="audio">
      <figcaption><Icon name="sound" />{medium.name}</figcaption>
      <audio controls preload="metadata" src={url ?? undefined} aria-label={medium.name} />
    </figure>
  );
}

function Lost({ medium }: { medium: Medium }) {
  const icon = isPicture(medium) ? "picture" : "sound";
  return <p class="lost"><Icon name={icon} />{medium.name} is not kept in this browser.</p>;
}
