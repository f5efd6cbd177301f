"use strict";
// Sorts tables, shows texts of points, hides servers, searches flame graphs, lists laps, and copies
// the command. This script computes no figures.
(() => {
  const all = (what, within = document) => [...within.querySelectorAll(what)];
  const one = (what, within = document) => within.querySelector(what);
  const data = JSON.parse(one("#laps").textContent);
  const tip = one("#tip");

  // A button switches between light and dark.
  const root = document.documentElement;
  const theme = one("#theme");
  theme.hidden = false;
  theme.addEventListener("click", () => {
    const shown = root.dataset.theme ||
      (matchMedia("(prefers-color-scheme: dark)").matches ? "dark" : "light");
    root.dataset.theme = shown === "dark" ? "light" : "dark";
  });

  // A button copies the command that repeats the run.
  const copy = one("#copy");
  const said = copy.textContent;
  copy.hidden = !one("#command").textContent;
  const by_hand = (text) => {
    const field = document.createElement("textarea");
    field.value = text;
    document.body.append(field);
    field.select();
    const done = document.execCommand("copy");
    field.remove();
    return done;
  };
  copy.addEventListener("click", async () => {
    const text = one("#command").textContent;
    let done = true;
    try {
      await navigator.clipboard.writeText(text);
    } catch {
      done = by_hand(text);
    }
    copy.textContent = done ? "Copied" : "Select it and copy it by hand";
    setTimeout(() => { copy.textContent = said; }, 2000);
  });

  // A click on a heading sorts its table, and another click reverses the order.
  const key = (row, column) => {
    const cell = row.cells[column];
    const value = cell.dataset.v;
    if (value === undefined) return cell.textContent.trim();
    return value === "" ? null : Number(value);
  };
  const sort = (head) => {
    const column = head.cellIndex;
    const up = head.getAttribute("aria-sort") !== "ascending";
    for (const other of head.parentNode.cells) other.removeAttribute("aria-sort");
    head.setAttribute("aria-sort", up ? "ascending" : "descending");
    const body = head.closest("table").tBodies[0];
    const rows = [...body.rows].sort((a, b) => {
      const [x, y] = [key(a, column), key(b, column)];
      if (x === null || y === null) return (x === null) - (y === null);
      const order = typeof x === "number" ? x - y : x.localeCompare(y);
      return up ? order : -order;
    });
    body.append(...rows);
  };
  document.addEventListener("click", (event) => {
    const head = event.target.closest(".sortable thead th");
    if (head) sort(head);
  });

  // A button shows and hides its server in all charts.
  const hidden = (server) => document.body.classList.contains("h" + server);
  for (const button of all(".legend button")) {
    const server = button.dataset.server;
    button.addEventListener("click", () => {
      const off = document.body.classList.toggle("h" + server);
      button.setAttribute("aria-pressed", String(!off));
      for (const row of all(`.sortable tr[data-server="${server}"]`)) {
        row.classList.toggle("off", off);
      }
    });
    const light = (on) => all("figure").forEach((figure) => spotlight(figure, on ? server : null));
    button.addEventListener("pointerenter", () => light(true));
    button.addEventListener("pointerleave", () => light(false));
  }
  const spotlight = (figure, server) => {
    figure.classList.toggle("one", server !== null);
    for (const group of all("[data-group]", figure)) {
      group.classList.toggle("on", group.dataset.group === String(server));
    }
  };

  // The mouse, a finger or the arrow keys choose the point whose text is shown.
  for (const figure of all("figure")) {
    const svg = one("svg", figure);
    const spots = JSON.parse(one("script", figure).textContent);
    let ring = null;
    let at = -1;
    const place = () => svg.getScreenCTM();
    const leave = () => {
      tip.hidden = true;
      if (ring) ring.remove();
      ring = null;
      spotlight(figure, null);
    };
    const show = (n) => {
      const [x, y, server, words] = spots[n];
      at = n;
      leave();
      ring = document.createElementNS(svg.namespaceURI, "circle");
      ring.setAttribute("class", "spot");
      ring.setAttribute("cx", x);
      ring.setAttribute("cy", y);
      ring.setAttribute("r", 7);
      svg.append(ring);
      spotlight(figure, server);
      const name = document.createElement("b");
      name.textContent = data.servers[server];
      tip.replaceChildren(name, words);
      tip.hidden = false;
      const on = new DOMPoint(x, y).matrixTransform(place());
      const box = tip.getBoundingClientRect();
      const left = Math.min(Math.max(4, on.x - box.width / 2), innerWidth - box.width - 4);
      const above = on.y - box.height - 12;
      tip.style.left = left + "px";
      tip.style.top = (above > 4 ? above : on.y + 14) + "px";
    };
    const nearest = (event, reach) => {
      const to = new DOMPoint(event.clientX, event.clientY).matrixTransform(place().inverse());
      let best = -1;
      let least = reach * reach;
      spots.forEach(([x, y, server], n) => {
        if (hidden(server)) return;
        const far = (x - to.x) ** 2 + (y - to.y) ** 2;
        if (far < least) [best, least] = [n, far];
      });
      return best;
    };
    const point = (event) => {
      const n = nearest(event, event.pointerType === "mouse" ? 28 : 44);
      if (n >= 0) show(n); else leave();
    };
    svg.addEventListener("pointermove", point);
    svg.addEventListener("pointerdown", point);
    svg.addEventListener("pointerleave", (event) => {
      if (event.pointerType === "mouse") leave();
    });
    figure.addEventListener("blur", leave);
    figure.addEventListener("keydown", (event) => {
      const step = { ArrowRight: 1, ArrowDown: 1, ArrowLeft: -1, ArrowUp: -1 }[event.key];
      if (event.key === "Escape") leave();
      if (!step || !spots.length) return;
      event.preventDefault();
      let n = at;
      for (let tries = 0; tries < spots.length; tries += 1) {
        n = (n + step + spots.length) % spots.length;
        if (!hidden(spots[n][2])) return show(n);
      }
    });
  }
  addEventListener("scroll", () => { tip.hidden = true; }, { passive: true });

  // Flame graphs are searched by name. A click on a box enlarges the box.
  for (const flame of all(".flame")) {
    const boxes = [...flame.children].map((box) => ({
      box,
      name: box.textContent.toLowerCase(),
      left: parseFloat(box.style.left),
      width: parseFloat(box.style.width),
      top: parseFloat(box.style.top),
    }));
    const enlarge = (on) => {
      for (const own of boxes) {
        const above = own.top < on.top && own.left <= on.left + 0.02 &&
          own.left + own.width >= on.left + on.width - 0.02;
        const within = own.top >= on.top && own.left >= on.left - 0.02 &&
          own.left + own.width <= on.left + on.width + 0.02;
        own.box.hidden = !above && !within;
        own.box.classList.toggle("above", above);
        own.box.style.left = above ? "0" : (own.left - on.left) / on.width * 100 + "%";
        own.box.style.width = above ? "100%" : own.width / on.width * 100 + "%";
      }
    };
    flame.addEventListener("click", (event) => {
      const on = boxes.find((own) => own.box === event.target);
      if (on) enlarge(on);
    });
    const search = flame.previousElementSibling;
    search.hidden = false;
    one("input", search).addEventListener("input", (event) => {
      const text = event.target.value.trim().toLowerCase();
      let hits = 0;
      for (const own of boxes) {
        const hit = text !== "" && own.name.includes(text);
        own.box.classList.toggle("hit", hit);
        hits += hit;
      }
      one("output", search).textContent = text === "" ? "" : `${hits} found`;
    });
  }

  // The table of laps is written when its section is opened.
  const each = one("#each");
  const write = () => {
    const of = one("select", each).value;
    const table = document.createElement("table");
    table.className = "sortable";
    const head = table.createTHead().insertRow();
    for (const text of data.headings) {
      const cell = document.createElement("th");
      const button = document.createElement("button");
      button.type = "button";
      button.textContent = text;
      cell.append(button);
      head.append(cell);
    }
    head.cells[0].className = "name";
    const body = table.createTBody();
    for (const lap of data.laps) {
      if (of !== "" && String(lap[0]) !== of) continue;
      const row = body.insertRow();
      lap.forEach((value, column) => {
        const cell = row.insertCell();
        if (column === 0) cell.className = "name";
        cell.textContent = column === 0 ? data.servers[value] ?? value : value ?? "–";
        if (column > 0 && column < data.headings.length - 1) cell.dataset.v = value ?? "";
      });
    }
    one(".wide", each).replaceChildren(table);
  };
  if (each) {
    each.addEventListener("toggle", () => { if (each.open) write(); });
    one("select", each).addEventListener("change", write);
  }
})();
