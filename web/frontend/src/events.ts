// Server-sent events as they come over a stream, cut wherever the network cut them.
//
// Read by hand rather than by EventSource, which tells neither the status of a refusal nor the
// comments by which a quiet stream shows that it is alive.

export interface ServerEvent {
  id: string;
  event: string;
  data: string;
}

export class EventReader {
  private rest = "";

  /** Return the events that are complete with this piece; comments are none. */
  read(piece: string): ServerEvent[] {
    const blocks = (this.rest + piece).replaceAll("\r\n", "\n").split("\n\n");
    this.rest = blocks.pop() ?? "";
    return blocks.map(parsed).filter((event) => event.data !== "");
  }
}

function parsed(block: string): ServerEvent {
  const event: ServerEvent = { id: "", event: "message", data: "" };
  const data: string[] = [];
  for (const line of block.split("\n")) {
    const colon = line.indexOf(":");
    const name = colon < 0 ? line : line.slice(0, colon);
    const value = colon < 0 ? "" : line.slice(colon + 1).replace(/^ /, "");
    if (name === "data") data.push(value);
    else if (name === "id" || name === "event") event[name] = value;
  }
  event.data = data.join("\n");
  return event;
}
