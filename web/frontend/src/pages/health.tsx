// Health: who leads, what is open, how late it is, what went wrong; and what this page is made of.

import { useSignal } from "@preact/signals";
import type { JSX } from "preact";
import { useEffect } from "preact/hooks";
import { Rest } from "../generic.tsx";
import { Title, Unseen } from "../parts.tsx";
import { session } from "../session.ts";
import type { PageState } from "../topic_state.ts";

export function Health({ state }: { state: PageState }): JSX.Element {
  const found = session.value;
  return (
    <>
      <Title command="kubectl get lease -A">Health</Title>
      <Unseen unseen={state.values["unseen"]} />
      <Rest state={state} shown={["unseen"]} />
      <p class="soft">
        {found.kind === "here" && `Reprieve ${found.session.version}. `}
        <Notices />
      </p>
    </>
  );
}

/** Where the licences lie is in the page's own file name, which only the manifest knows. */
function Notices(): JSX.Element {
  const href = useSignal("");
  useEffect(() => {
    href.value = document.querySelector<HTMLLinkElement>("link[rel=license]")?.href ?? "";
  }, []);
  return href.value ? <a href={href.value} target="_blank" rel="noopener">Licences of the packages in this page</a> : <></>;
}
