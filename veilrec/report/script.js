"use strict";
(() => {
  const store = JSON.parse(document.getElementById("data").textContent);
  const root = document.documentElement;
  const plots = [...document.querySelectorAll("[data-draw]")];
  const HEAT = {
    light: ["#f2f4f7", "#c3d9ee", "#7fb0db", "#3277b5", "#0b3a6b"],
    dark: ["#242a33", "#23466a", "#2f74ad", "#72b6ea", "#dcf1ff"],
  };
  const PRINTED = 690, BESIDE = 418; // pixels across a printed page, and beside the tiles
  let printing = false;

  // Colours are names such as "@c0 0.4": a variable of the style sheet, and how opaque.
  const probe = document.createElement("span");
  probe.hidden = true;
  document.body.append(probe);
  const dark = () => {
    probe.style.color = "light-dark(rgb(0, 0, 0), rgb(255, 255, 255))";
    return getComputedStyle(probe).color !== "rgb(0, 0, 0)";
  };
  const tint = (name) => {
    const [variable, alpha] = name.slice(1).split(" ");
    probe.style.color = `var(--${variable})`;
    const parts = getComputedStyle(probe).color.match(/[\d.]+/g);
    return `rgba(${parts.slice(0, 3).join(", ")}, ${alpha || 1})`;
  };
  const scale = () => HEAT[dark() ? "dark" : "light"].map((colour, k, all) => [k / (all.length - 1), colour]);
  const filled = (value, key) => {
    if (Array.isArray(value)) return value.map((entry) => filled(entry, key));
    if (value && typeof value === "object")
      return Object.fromEntries(Object.entries(value).map(([name, entry]) => [name, filled(entry, name)]));
    if (key === "colorscale") return scale();
    return key === "color" && typeof value === "string" && value.startsWith("@") ? tint(value) : value;
  };

  const look = () => ({
    ink: tint("@ink"), muted: tint("@muted"), grid: tint("@grid"), line: tint("@line"), paper: tint("@paper"),
    family: getComputedStyle(document.body).fontFamily,
  });
  const chosen = (id) => Number(document.querySelector(`select[data-chart="${id}"]`)?.value || 0);
  const figure = (id) => filled(store.charts[id][chosen(id)]);
  const draw = (place) => {
    const width = printing ? (place.closest(".beside") ? BESIDE : PRINTED) : place.clientWidth;
    place.replaceChildren(Charts.draw(figure(place.dataset.draw), width, look()));
  };
  const drawAll = () => plots.forEach(draw);
  const numbers = (id) => {
    const at = String(chosen(id));
    document.querySelectorAll(`.numbers[data-of="${id}"]`).forEach((table) => {
      const mine = table.dataset.variants.split(" ").filter(Boolean);
      table.hidden = mine.length > 0 && !mine.includes(at);
    });
  };

  const save = (name, type, content) => {
    const link = document.createElement("a");
    link.href = URL.createObjectURL(new Blob([content], { type }));
    link.download = name;
    link.click();
    setTimeout(() => URL.revokeObjectURL(link.href), 10000);
  };
  const image = (text, width, height) => new Promise((done, failed) => {
    const drawn = new Image();
    drawn.onload = () => {
      const canvas = document.createElement("canvas");
      [canvas.width, canvas.height] = [2 * width, 2 * height];
      canvas.getContext("2d").drawImage(drawn, 0, 0, canvas.width, canvas.height);
      canvas.toBlob(done, "image/png");
    };
    drawn.onerror = failed;
    drawn.src = `data:image/svg+xml;charset=utf-8,${encodeURIComponent(text)}`;
  });
  const saveImage = async (id, format) => {
    const option = document.querySelector(`select[data-chart="${id}"]`)?.selectedOptions[0];
    const title = [document.getElementById(`${id}-title`).textContent, option?.textContent].filter(Boolean).join(", ");
    const { data, layout } = figure(id);
    const svg = Charts.draw({ data, layout: { ...layout, title: title.replaceAll("&", "&amp;") } }, 1000, look());
    const text = new XMLSerializer().serializeToString(svg);
    if (format === "svg") save(`${id}.svg`, "image/svg+xml", text);
    else save(`${id}.png`, "image/png", await image(text, svg.getAttribute("width"), svg.getAttribute("height")));
  };

  const json = () => JSON.stringify(store.numbers.rows.map(
    (row) => Object.fromEntries(row.map((cell, k) => [store.numbers.columns[k], cell]))), null, 1);

  const theme = document.getElementById("theme");
  const press = () => { theme.textContent = dark() ? "Light theme" : "Dark theme"; };
  theme.addEventListener("click", () => {
    root.dataset.theme = dark() ? "light" : "dark";
    press();
    drawAll();
  });
  matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => { press(); drawAll(); });

  const toPaper = (on) => {
    if (on === printing) return;
    printing = on;
    if (on) { root.dataset.before = root.dataset.theme || ""; root.dataset.theme = "light"; }
    else if (root.dataset.before) root.dataset.theme = root.dataset.before;
    else delete root.dataset.theme;
    drawAll();
  };
  addEventListener("beforeprint", () => toPaper(true));
  addEventListener("afterprint", () => toPaper(false));
  matchMedia("print").addEventListener("change", (event) => toPaper(event.matches));
  document.getElementById("print").addEventListener("click", () => print());

  let waiting = 0, across = innerWidth;
  addEventListener("resize", () => {
    if (printing || innerWidth === across) return;
    across = innerWidth;
    cancelAnimationFrame(waiting);
    waiting = requestAnimationFrame(drawAll);
  });
  document.querySelectorAll("select[data-chart]").forEach((select) => select.addEventListener("change", () => {
    draw(document.querySelector(`[data-draw="${select.dataset.chart}"]`));
    numbers(select.dataset.chart);
  }));
  document.querySelectorAll("[data-image]").forEach((button) => button.addEventListener("click", () => {
    saveImage(button.dataset.of, button.dataset.image);
  }));
  document.querySelectorAll("[data-export]").forEach((button) => button.addEventListener("click", () => {
    if (button.dataset.export === "csv") save("report.csv", "text/csv;charset=utf-8", store.numbers.csv);
    else save("report.json", "application/json", json());
  }));

  press();
  drawAll();
  plots.forEach((place) => numbers(place.dataset.draw));
  root.dataset.ready = "yes";
})();
