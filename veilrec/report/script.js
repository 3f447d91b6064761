"use strict";
(() => {
  const store = JSON.parse(document.getElementById("data").textContent);
  const root = document.documentElement;
  const plots = [...document.querySelectorAll("[data-draw]")];
  const HEAT = {
    light: ["#f2f4f7", "#c3d9ee", "#7fb0db", "#3277b5", "#0b3a6b"],
    dark: ["#242a33", "#23466a", "#2f74ad", "#72b6ea", "#dcf1ff"],
  };
  const NARROW = 620; // pixels: below this, labels at marks give way to a legend
  const PRINTED = 690; // pixels across a printed page
  const CONFIG = { displayModeBar: false, displaylogo: false, showLink: false, scrollZoom: false, doubleClick: false };
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

  const axis = () => ({
    gridcolor: tint("@grid"), linecolor: tint("@line"), zeroline: false, fixedrange: true, automargin: true, ticks: "",
  });
  const wrapped = (text, narrow) => (narrow ? text.replace(/(.{1,40})(?: |$)/g, "$1<br>").replace(/<br>$/, "") : text);
  const titled = (given, narrow) => (!given?.title ? {} : {
    title: { text: wrapped(given.title.text, narrow), standoff: 10, font: { size: 13, color: tint("@muted") } },
  });
  const laidOut = (given, narrow) => ({
    ...given,
    font: { family: getComputedStyle(document.body).fontFamily, size: narrow ? 12 : 13, color: tint("@ink") },
    paper_bgcolor: "rgba(0,0,0,0)",
    plot_bgcolor: "rgba(0,0,0,0)",
    margin: { l: narrow ? 48 : 64, r: narrow ? 12 : 28, t: 12, b: given.xaxis?.title?.text ? 56 : 28, ...given.margin },
    hovermode: "closest",
    dragmode: false,
    hoverlabel: { bgcolor: tint("@paper"), bordercolor: tint("@line"), font: { color: tint("@ink") }, align: "left" },
    legend: { orientation: "h", x: 0, xanchor: "left", y: 0, yref: "container", yanchor: "bottom", ...given.legend },
    xaxis: { ...axis(), ...given.xaxis, ...titled(given.xaxis, narrow) },
    yaxis: { ...axis(), ...given.yaxis, ...titled(given.yaxis, false) },
  });
  const chosen = (id) => Number(document.querySelector(`select[data-chart="${id}"]`)?.value || 0);
  const drawing = (id, width) => {
    const figure = filled(store.charts[id][chosen(id)]);
    const narrow = width < NARROW;
    const layout = laidOut(figure.layout, narrow);
    const named = figure.data.filter((trace) => trace.name && trace.showlegend !== false).length;
    if (layout.showlegend) layout.height += narrow ? Math.max(60, 26 * named - 40) : 24; // there, one below the other
    return { data: figure.data, layout: { ...layout, width } };
  };
  const draw = (place) => {
    const width = printing ? PRINTED : place.clientWidth;
    const { data, layout } = drawing(place.dataset.draw, width);
    return Plotly.react(place, data, layout, CONFIG);
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
  const saveImage = async (id, format) => {
    const { data, layout } = drawing(id, 1000);
    const choice = document.querySelector(`select[data-chart="${id}"]`);
    const option = choice?.selectedOptions[0];
    const told = [document.getElementById(`${id}-title`).textContent, option?.textContent].filter(Boolean).join(", ");
    layout.title = { text: told.replaceAll("&", "&amp;").replaceAll("<", "&lt;").replaceAll("$", "&#36;"), x: 0.01, xanchor: "left", y: 0.99, yanchor: "top", font: { size: 17 } };
    layout.margin = { ...layout.margin, t: layout.margin.t + 44 };
    layout.height += 44;
    layout.paper_bgcolor = tint("@paper");
    const options = { format, width: layout.width, height: layout.height, scale: format === "png" ? 2 : 1 };
    const url = await Plotly.toImage({ data, layout, config: CONFIG }, options);
    const body = url.slice(url.indexOf(",") + 1);
    if (format === "svg") save(`${id}.svg`, "image/svg+xml", decodeURIComponent(body));
    else save(`${id}.png`, "image/png", Uint8Array.from(atob(body), (letter) => letter.charCodeAt(0)));
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
