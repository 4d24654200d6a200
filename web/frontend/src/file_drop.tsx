// A place to drop a file on, or to choose one: its text is read here and sent nowhere.

import { useSignal } from "@preact/signals";
import type { ComponentChildren, JSX } from "preact";

interface FileDropProps {
  accept: string;
  what: string;
  take: (text: string, name: string) => void;
  children?: ComponentChildren;
}

const MOST_BYTES = 64 * 1024 * 1024;

export function FileDrop({ accept, what, take, children }: FileDropProps): JSX.Element {
  const over = useSignal(false);
  const error = useSignal("");
  const read = async (file: File | null | undefined): Promise<void> => {
    if (!file) return;
    error.value = file.size > MOST_BYTES ? `${file.name} is larger than 64 MiB.` : "";
    if (!error.value) take(await file.text(), file.name);
  };
  return (
    <div
      class={`drop ${over.value ? "over-it" : ""}`}
      onDragOver={(event) => {
        event.preventDefault();
        over.value = true;
      }}
      onDragLeave={() => (over.value = false)}
      onDrop={(event) => {
        event.preventDefault();
        over.value = false;
        void read(event.dataTransfer?.files[0]);
      }}
    >
      {children}
      <label class="file">
        Drop {what} here, or choose it:{" "}
        <input type="file" accept={accept} onChange={(event) => void read(event.currentTarget.files?.[0])} />
      </label>
      {error.value && <p role="alert" class="word attention">{error.value}</p>}
    </div>
  );
}
