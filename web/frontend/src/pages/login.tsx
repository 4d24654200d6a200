// Login with a bearer token, which goes to the server once and is kept nowhere.

import { useSignal } from "@preact/signals";
import type { JSX } from "preact";
import { Command } from "../parts.tsx";
import { login } from "../session.ts";

export function LoginPage({ wanted }: { wanted: string }): JSX.Element {
  // On one's own machine the token stands in the address that was printed, and is no Kubernetes token.
  const own = wanted.includes("reprieve dashboard");
  const [said = "", command] = wanted.split(/: (?=kubectl )/);
  const error = useSignal("");
  const busy = useSignal(false);
  const submit = async (event: SubmitEvent): Promise<void> => {
    event.preventDefault();
    const field = (event.currentTarget as HTMLFormElement).elements.namedItem("token") as HTMLInputElement;
    busy.value = true;
    error.value = await login(field.value.trim());
    busy.value = false;
    field.value = "";
    field.focus();
  };
  return (
    <main class="bare">
      <form class="login" onSubmit={(event) => void submit(event)}>
        <h1>Reprieve</h1>
        {said && <p>{said.charAt(0).toUpperCase() + said.slice(1)}{/[.!]$/.test(said) ? "" : "."}</p>}
        <label for="token">{own ? "Token of the address" : "Token of a Kubernetes user or service account"}</label>
        <input id="token" name="token" type="password" autocomplete="off" required autofocus aria-describedby="token-said" />
        <button type="submit" disabled={busy.value}>Log in</button>
        <p id="token-said" role="alert" class={error.value ? "word attention" : ""}>{error.value}</p>
        {!own && (
          <>
            <p class="soft">One token that logs in and plans, good for an hour; NAME is a service account of yours:</p>
            <Command command={command ?? "kubectl create token NAME --audience reprieve-web"} />
          </>
        )}
      </form>
    </main>
  );
}
