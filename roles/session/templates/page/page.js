"use strict";
(() => {
  const data = JSON.parse(document.getElementById("data").textContent);
  const $ = (id) => document.getElementById(id);
  const ORDER = ["RUNNING", "CREATING", "PENDING", "DEGRADED", "ERROR", "TERMINATED", "CANCELLED"];
  const UNITS = [["day", 86400], ["hour", 3600], ["minute", 60], ["second", 1]];
  const relative = new Intl.RelativeTimeFormat("en", { numeric: "always", style: "long" });
  const clock = new Intl.DateTimeFormat("en-GB", { dateStyle: "medium", timeStyle: "short" });
  const state = { status: "", text: "", sort: "newest" };

  // Every text of the data gets into the page here, and only as text.
  const make = (tag, cls, ...children) => {
    const element = document.createElement(tag);
    if (cls) element.className = cls;
    element.append(...children.filter((child) => child !== undefined && child !== null).map((child) =>
      child instanceof Node ? child : document.createTextNode(String(child))));
    return element;
  };
  const date = (seconds) => clock.format(seconds * 1000);
  const since = (seconds) => {
    const away = seconds - Date.now() / 1000;
    const [unit, length] = UNITS.find(([, span]) => Math.abs(away) >= span) || UNITS[3];
    return relative.format(Math.trunc(away / length), unit);
  };
  const word = (status) => status[0] + status.slice(1).toLowerCase();
  const count = (number, noun) => `${number} ${noun}${number === 1 ? "" : "s"}`;
  const agentsOf = (session) => [...new Set((session.kernels || []).map((kernel) => kernel[1]))];
  const bornAt = (session) => session.created_at || session.started_at || session.ended_at || 0;

  const timeOf = (session) => {
    if (session.ended_at) return `ended ${since(session.ended_at)}`;
    if (session.ends_at) return `ends ${since(session.ends_at)}`;
    return bornAt(session) ? since(bornAt(session)) : "";
  };
  const tagOf = (session) => {
    if (!session.size) return "";
    const containers = count(session.size, "container");
    return session.mode ? `${session.mode} · ${containers}` : containers;
  };

  const fact = (name, ...value) => make("div", "", make("dt", "", name), make("dd", "", ...value));
  const details = (session) => {
    const body = make("div", "body");
    if (session.next) body.append(make("p", "next", session.next));
    const facts = make("dl");
    const add = (name, value) => { if (value !== undefined && value !== "") facts.append(fact(name, value)); };
    add("Id", session.id);
    add("Image", session.image);
    add(session.each ? "Resources in all" : "Resources", session.total);
    add("Resources of main1", session.each);
    add("Resource group", session.group);
    add("Network", session.network);
    add("Apps", (session.apps || []).join(", "));
    for (const [name, key] of [["Created", "created_at"], ["Started", "started_at"], ["Ends", "ends_at"], ["Ended", "ended_at"]])
      if (session[key]) add(name, date(session[key]));
    add("Exit code", session.exit_code);
    body.append(facts);
    if (session.kernels) {
      const rows = make("tbody");
      for (const [hostname, agent, address, status] of session.kernels)
        rows.append(make("tr", "", make("td", "", hostname), make("td", "", agent), make("td", "", address || "–"),
          make("td", "", status || "running")));
      const head = make("tr", "", ...["Container", "Agent", "Address", "Status"].map((title) => {
        const cell = make("th", "", title);
        cell.scope = "col";
        return cell;
      }));
      const scroll = make("div", "scroll", make("table", "", make("thead", "", head), rows));
      scroll.tabIndex = 0;
      scroll.setAttribute("role", "group");
      scroll.setAttribute("aria-label", `Containers of ${session.name}`);
      body.append(scroll);
    }
    return body;
  };

  const rowOf = (session) => {
    const names = agentsOf(session);
    const shown = names.length > 2 ? `${names[0]} and ${names.length - 1} more` : names.join(", ");
    const tag = tagOf(session);
    const main = make("span", "main", make("span", "name", session.name), tag ? make("span", "tag", tag) : null);
    const summary = make("summary", "", make("span", "", make("span", `status ${session.status}`, word(session.status))), main,
      make("span", "quiet user", session.user || ""), make("span", "quiet", session.total || ""), make("span", "quiet agents", shown),
      make("span", "quiet time", timeOf(session)), session.why ? make("span", "why", session.why) : null);
    const element = make("details", "", summary);
    element.addEventListener("toggle", () => {
      if (element.open && element.children.length === 1) element.append(details(session));
    });
    return make("li", "", element);
  };

  const sessions = data.sessions.map((session) => ({
    session,
    text: [session.name, session.id, session.user, session.image, session.group, session.why, ...agentsOf(session)].join("\n").toLowerCase(),
    row: null,
  }));
  const compare = (left, right) => left.localeCompare(right, "en", { numeric: true });
  const SORTS = {
    newest: (a, b) => bornAt(b) - bornAt(a),
    oldest: (a, b) => bornAt(a) - bornAt(b),
    name: (a, b) => compare(a.name, b.name),
    status: (a, b) => ORDER.indexOf(a.status) - ORDER.indexOf(b.status) || (a.queue_position || 0) - (b.queue_position || 0),
    user: (a, b) => compare(a.user || "\uffff", b.user || "\uffff") || compare(a.name, b.name),
    size: (a, b) => (b.size || 0) - (a.size || 0),
    ends: (a, b) => (a.ends_at || Infinity) - (b.ends_at || Infinity) || bornAt(b) - bornAt(a),
  };

  const show = () => {
    const words = state.text.toLowerCase().split(/\s+/).filter(Boolean);
    const chosen = sessions.filter((each) => (!state.status || each.session.status === state.status)
      && words.every((part) => each.text.includes(part)));
    chosen.sort((a, b) => SORTS[state.sort](a.session, b.session));
    $("list").replaceChildren(...chosen.map((each) => (each.row = each.row || rowOf(each.session))));
    const all = count(sessions.length, "session");
    $("count").textContent = !sessions.length ? "There are no sessions." : !chosen.length ? `None of ${all} matches.`
      : chosen.length < sessions.length ? `${chosen.length} of ${all}` : all;
    for (const button of $("statuses").children) button.setAttribute("aria-pressed", String(button.value === state.status));
    const kept = new URLSearchParams(Object.entries(state).filter(([key, value]) => value && !(key === "sort" && value === "newest")));
    history.replaceState(null, "", `#${kept}`);
  };

  const hostOf = (agent) => {
    const name = make("button", "link", agent.name);
    name.type = "button";
    name.title = "Show the sessions of this agent";
    name.addEventListener("click", () => {
      Object.assign(state, { status: "", text: agent.name });
      $("filter").value = agent.name;
      show();
      $("filter").focus();
    });
    const item = make("li", agent.away ? "away" : "", make("div", "host", name,
      agent.away ? null : make("span", "quiet", `${agent.group} · ${count(agent.containers, "container")}`)));
    if (agent.note) item.append(make("p", "note", agent.note));
    for (const [slot, taken, text] of agent.slots) {
      const fill = make("div", taken >= 95 ? "full" : "");
      fill.style.width = `${taken}%`;
      item.append(make("div", "slot", make("p", "", make("span", "", slot), make("span", "", text)), make("div", "meter", fill)));
    }
    return item;
  };

  const kept = new URLSearchParams(location.hash.slice(1));
  state.status = kept.get("status") || "";
  state.text = kept.get("text") || "";
  state.sort = Object.hasOwn(SORTS, kept.get("sort") || "") ? kept.get("sort") : "newest";
  $("filter").value = state.text;
  $("sort").value = state.sort;
  const present = ORDER.filter((status) => data.sessions.some((session) => session.status === status));
  for (const status of ["", ...present]) {
    const number = status ? data.sessions.filter((session) => session.status === status).length : data.sessions.length;
    const button = make("button", "", status ? word(status) : "All", make("span", "", number));
    button.type = "button";
    button.value = status;
    button.addEventListener("click", () => { state.status = status; show(); });
    $("statuses").append(button);
  }
  $("filter").addEventListener("input", () => { state.text = $("filter").value; show(); });
  $("sort").addEventListener("change", () => { state.sort = $("sort").value; show(); });
  const written = () => {
    const now = Date.now() / 1000, { host, ran_at, late_at } = data.timer, late = now > late_at;
    $("written").textContent = `Written ${date(data.now)}, ${since(data.now)}${late
      ? `. The last good run of the timer was ${since(ran_at)}: sessions that wait do not start, or a run takes long;`
      + ` see systemctl status backendai-schedule.service on ${host}` : ""}`;
    $("written").className = late || now - data.now > 600 ? "old" : "";
  };
  written();
  setInterval(written, 20000);
  show();
  const away = data.agents.filter((agent) => agent.away).length;
  $("capacity").textContent = `${count(data.agents.length, "agent")}${away ? `, ${away} of them unavailable` : ""}`;
  $("hosts").append(...data.agents.map(hostOf));
  for (const bar of document.querySelectorAll("#statuses, .tools")) bar.hidden = !sessions.length;
  $("sessions").hidden = false;
  $("agents").hidden = false;
})();
