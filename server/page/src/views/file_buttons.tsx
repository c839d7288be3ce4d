// The buttons that choose files: any, pictures, and on a phone the camera.

import { useRef } from "preact/hooks";
import { useCell } from "../cell";
import { namesOf } from "../chat/files";
import { modalities } from "../server/modalities";
import { type IconName, IconButton } from "./icon";

type OnFiles = (files: Iterable<File>) => void;

export function FileButtons({ onFiles }: { onFiles: OnFiles }) {
  const taken = useCell(modalities);
  return (
    <div class="file-buttons">
      <FileButton icon="attach" label={`Attach ${namesOf(taken)}`} onFiles={onFiles} />
      {taken?.vision && <PictureButtons onFiles={onFiles} />}
    </div>
  );
}

function PictureButtons({ onFiles }: { onFiles: OnFiles }) {
  const given = { accept: "image/*", onFiles };
  return (
    <>
      <FileButton icon="picture" label="Add pictures" {...given} />
      <FileButton icon="camera" label="Take a photo" class="camera" capture="environment" {...given} />
    </>
  );
}

interface Props {
  icon: IconName;
  label: string;
  accept?: string;
  capture?: "environment";
  class?: string;
  onFiles: OnFiles;
}

/** A camera takes one picture at a time. */
function FileButton({ icon, label, accept, capture, onFiles, ...rest }: Props) {
  const input = useRef<HTMLInputElement>(null);
  const onChange = () => {
    onFiles([...(input.current!.files ?? [])]);
    input.current!.value = "";
  };
  return (
    <>
      <input
        ref={input}
        type="file"
        multiple={!capture}
        accept={accept}
        capture={capture}
        hidden
        aria-label={label}
        onChange={onChange}
      />
      <IconButton icon={icon} label={label} onClick={() => input.current!.click()} {...rest} />
    </>
  );
}
