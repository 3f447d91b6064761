"use strict";
// Draws the figures of a report as SVG: marks with intervals, bars, lines and a grid of colours, over reference lines.
const Charts = (() => {
  const NS = "http://www.w3.org/2000/svg";
  const DASHES = { dash: "8 5", dot: "2 4", dashdot: "9 4 2 4", longdash: "14 6" };
  const SYMBOLS = { // within a circle of radius 1
    square: "M-.89-.89H.89V.89H-.89Z",
    diamond: "M0-1.3 1.3 0 0 1.3-1.3 0Z",
    "triangle-up": "M0-1.2 1.1.8H-1.1Z",
    cross: "M-.4-1.1H.4V-.4H1.1V.4H.4V1.1H-.4V.4H-1.1V-.4H-.4Z",
    x: "M-1-.5-.5-1 0-.5.5-1 1-.5.5 0 1 .5.5 1 0 .5-.5 1-1 .5-.5 0Z",
    star: "M0-1.4.33-.45 1.33-.43.53.17.82 1.13 0 .56-.82 1.13-.53.17-1.33-.43-.33-.45Z",
    hexagon: "M-.5-.95H.5L1.1 0 .5.95H-.5L-1.1 0Z",
  };
  const ink = document.createElement("canvas").getContext("2d");
  const put = (parent, name, attributes, text) => {
    const made = document.createElementNS(NS, name);
    for (const [key, value] of Object.entries(attributes)) if (value !== undefined) made.setAttribute(key, value);
    if (text !== undefined) made.textContent = text;
    parent.append(made);
    return made;
  };
  const bare = (text) => text.replaceAll("&lt;", "<").replaceAll("&gt;", ">").replaceAll("&#36;", "$").replaceAll("&amp;", "&");
  const rows = (text) => String(text).split("<br>").map(bare);
  const wide = (text, font) => { ink.font = `${font.size}px ${font.family}`; return Math.max(...rows(text).map((row) => ink.measureText(row).width)); };
  const words = (parent, text, x, y, font, anchor = "start", middle = 0) => {
    const told = rows(text), size = font.size * 1.2;
    const made = put(parent, "text", { x, y, "font-size": font.size, "font-family": font.family, "font-weight": font.weight, fill: font.color, "text-anchor": anchor });
    told.forEach((row, k) => put(made, "tspan", { x, dy: k ? size : -middle * (told.length - 1) * size }, row));
    return made;
  };

  const steps = (low, high, count) => {
    const raw = (high - low) / count, power = 10 ** Math.floor(Math.log10(raw));
    const step = [1, 2, 5, 10].map((k) => k * power).find((one) => one >= raw * 0.999);
    const found = [];
    for (let k = Math.ceil(low / step - 1e-9); k * step <= high + step * 1e-9; k += 1) found.push(k * step);
    return found.map((value) => [value, String(Number(value.toFixed(10))).replace("-", "−")]);
  };
  const ends = (error, k, way) => (error ? error[way]?.[k] || 0 : 0);
  const extent = (data, name) => {
    const found = [];
    for (const trace of data) {
      const error = trace[`error_${name}`];
      (trace[name] || []).forEach((value, k) => {
        if (typeof value !== "number") return;
        const at = trace.type === "bar" && name === "x" ? trace.base + value : value;
        found.push(at - ends(error, k, "arrayminus"), at + ends(error, k, "array"));
        if (trace.type === "bar" && name === "x") found.push(trace.base);
      });
    }
    return found;
  };
  const span = (figure, name) => {
    const axis = figure.layout[`${name}axis`] || {};
    if (axis.range) return axis.range;
    const heat = figure.data.find((trace) => trace.type === "heatmap");
    if (heat) return [-0.5, (name === "x" ? axis.tickvals.length : heat.z.length) - 0.5];
    const lines = (figure.layout.shapes || []).filter((one) => one[`${name}ref`] === name).map((one) => one[`${name}0`]);
    const found = [...extent(figure.data, name), ...lines];
    if (!found.length) return [0, 1];
    const low = Math.min(...found), high = Math.max(...found), pad = (high - low || 1) * 0.06;
    return [axis.rangemode === "tozero" ? Math.min(0, low) : low - pad, high + pad];
  };

  const symbol = (parent, marker, k, x, y) => {
    const name = String(Array.isArray(marker.symbol) ? marker.symbol[k] : marker.symbol || "circle");
    const open = name.endsWith("-open"), size = (marker.size || 6) / 2;
    const paint = { fill: open ? "none" : marker.color, stroke: marker.color, "stroke-width": open ? 1.8 : 0, "pointer-events": "all", class: "mark" };
    const shape = SYMBOLS[name.replace("-open", "")];
    if (!shape) return put(parent, "circle", { cx: x, cy: y, r: size, ...paint });
    return put(parent, "path", { d: shape, transform: `translate(${x} ${y}) scale(${size})`, ...paint, "stroke-width": open ? 1.8 / size : 0 });
  };
  const whisker = (parent, error, k, x, y, place, value, across) => {
    const low = ends(error, k, "arrayminus"), high = ends(error, k, "array");
    if (!low && !high) return;
    const from = place(value - low), to = place(value + high), end = error.width || 3;
    const path = across === "x"
      ? `M${from} ${y}H${to}M${from} ${y - end}v${2 * end}M${to} ${y - end}v${2 * end}`
      : `M${x} ${from}V${to}M${x - end} ${from}h${2 * end}M${x - end} ${to}h${2 * end}`;
    put(parent, "path", { d: path, stroke: error.color, "stroke-width": error.thickness, fill: "none" });
  };
  const told = (made, text) => { if (text) put(made, "title", {}, rows(text).join("\n")); };

  const scatter = (group, trace, x, y) => {
    const places = (trace.x || []).map((value, k) => [value, trace.y[k], k]).filter(([a, b]) => typeof a === "number" && typeof b === "number");
    if (trace.mode === "lines") {
      const step = trace.line.shape === "hv";
      const path = places.map(([a, b], k) => (!k ? `M${x(a)} ${y(b)}` : step ? `H${x(a)}V${y(b)}` : `L${x(a)} ${y(b)}`)).join("");
      if (path) put(group, "path", { d: path, fill: "none", stroke: trace.line.color, "stroke-width": trace.line.width, "stroke-dasharray": DASHES[trace.line.dash], class: "mark" });
      if (trace.hovertext) places.forEach(([a, b, k]) => told(put(group, "circle", { cx: x(a), cy: y(b), r: 6, fill: "none", "pointer-events": "all" }), trace.hovertext[k]));
      return;
    }
    for (const [a, b, k] of places) {
      whisker(group, trace.error_x, k, x(a), y(b), x, a, "x");
      whisker(group, trace.error_y, k, x(a), y(b), y, b, "y");
      told(symbol(group, trace.marker, k, x(a), y(b)), trace.hovertext?.[k]);
    }
  };
  const bar = (group, trace, x, y) => trace.x.forEach((value, k) => {
    if (typeof value !== "number") return;
    const from = x(trace.base), to = x(trace.base + value), high = Math.abs(y(0) - y(trace.width));
    put(group, "rect", { x: Math.min(from, to), y: y(trace.y[k]) - high / 2, width: Math.abs(to - from), height: high, fill: trace.marker.color, class: "mark" });
  });
  const parts = (colour) => colour.match(/^#(..)(..)(..)$/).slice(1).map((part) => parseInt(part, 16));
  const shade = (scale, share) => { // between the two colours that it lies between
    const at = Math.min(1, Math.max(0, share)) * (scale.length - 1), k = Math.min(scale.length - 2, Math.floor(at));
    const [from, to] = [parts(scale[k][1]), parts(scale[k + 1][1])];
    return `#${from.map((value, c) => Math.round(value + (to[c] - value) * (at - k)).toString(16).padStart(2, "0")).join("")}`;
  };
  const light = (colour) => {
    const [red, green, blue] = parts(colour);
    return 0.299 * red + 0.587 * green + 0.114 * blue > 140;
  };
  const heatmap = (group, trace, x, y, font) => trace.z.forEach((row, r) => row.forEach((value, c) => {
    if (value === null || value === undefined) return;
    const across = Math.abs(x(1) - x(0)) - trace.xgap, down = Math.abs(y(1) - y(0)) - trace.ygap;
    const colour = shade(trace.colorscale, (value - trace.zmin) / (trace.zmax - trace.zmin));
    const cell = put(group, "rect", { x: x(c) - across / 2, y: y(r) - down / 2, width: across, height: down, fill: colour, class: "mark" });
    told(cell, trace.hovertext[r][c]);
    words(group, trace.text[r][c] || "", x(c), y(r) + 4, { ...font, color: light(colour) ? "#14171c" : "#ffffff" }, "middle").setAttribute("pointer-events", "none");
  }));

  const legend = (figure, font, width) => {
    const items = figure.layout.showlegend ? figure.data.filter((trace) => trace.name && trace.showlegend !== false && (trace.mode !== "lines" || trace.x.length > 1)) : [];
    let x = 0, y = 0;
    const placed = items.map((trace) => {
      const size = 34 + wide(trace.name, font);
      if (x && x + size > width) { x = 0; y += 22; }
      const at = { trace, x, y };
      x += size + 8;
      return at;
    });
    return { placed, height: items.length ? y + 30 : 0 };
  };
  const key = (group, trace, x, y, font) => {
    if (trace.mode === "lines") put(group, "path", { d: `M${x} ${y}h22`, stroke: trace.line.color, "stroke-width": trace.line.width, "stroke-dasharray": DASHES[trace.line.dash] });
    else symbol(group, { ...trace.marker, symbol: Array.isArray(trace.marker.symbol) ? trace.marker.symbol[0] : trace.marker.symbol, size: 10 }, 0, x + 11, y);
    words(group, trace.name, x + 28, y + 4, font);
  };

  // An element with one drawing: `look` has the colours and the font of the page.
  const draw = (figure, width, look) => {
    const { layout, data } = figure, font = { size: width < 620 ? 12 : 13, family: look.family, color: look.ink };
    const small = { ...font, size: 11, color: look.muted };
    const xaxis = layout.xaxis || {}, yaxis = layout.yaxis || {};
    const [yLow, yHigh] = span(figure, "y"), [xLow, xHigh] = span(figure, "x");
    const top = (layout.margin?.t || 12) + (layout.title ? 40 : 0), keys = legend(figure, font, width - 20);
    const yTicks = yaxis.tickvals ? yaxis.tickvals.map((at, k) => [at, yaxis.ticktext[k]]) : steps(yLow, yHigh, 6);
    const left = Math.min(width * 0.42, Math.max(...yTicks.map(([, text]) => wide(text, font)), 10) + (yaxis.title ? 34 : 14)), right = 24;
    const across = (width - left - right) * (xaxis.domain?.[1] ?? 1);
    const xTicks = xaxis.tickvals ? xaxis.tickvals.map((at, k) => [at, xaxis.ticktext[k]]) : steps(xLow, xHigh, Math.max(2, Math.floor(across / 90)));
    const named = xaxis.title ? wrapped(xaxis.title.text, across + left, font) : [];
    const below = 20 + 14 * Math.max(...xTicks.map(([, text]) => rows(text).length)) + 17 * named.length;
    const height = layout.height + keys.height + (layout.title ? 40 : 0), bottom = height - below - keys.height;
    const x = (value) => left + (across * (value - xLow)) / (xHigh - xLow);
    const turned = yaxis.autorange === "reversed";
    const y = (value) => (turned ? top + ((bottom - top) * (value - yLow)) / (yHigh - yLow) : bottom - ((bottom - top) * (value - yLow)) / (yHigh - yLow));
    const svg = document.createElementNS(NS, "svg");
    for (const [name, value] of Object.entries({ xmlns: NS, width, height, viewBox: `0 0 ${width} ${height}` })) svg.setAttribute(name, value);
    if (layout.title) { put(svg, "rect", { width, height, fill: look.paper }); words(svg, layout.title, 10, 24, { ...font, size: 17, weight: 600 }); }
    const axes = put(svg, "g", { class: "axes" }), group = put(svg, "g", { class: "marks" });
    for (const [at, text] of xTicks) {
      if (xaxis.showgrid !== false) put(axes, "path", { d: `M${x(at)} ${top}V${bottom}`, stroke: look.grid });
      words(axes, text, x(at), bottom + 18, font, "middle").setAttribute("class", "tick");
    }
    for (const [at, text] of yTicks) {
      if (yaxis.showgrid !== false) put(axes, "path", { d: `M${left} ${y(at)}H${left + across}`, stroke: look.grid });
      words(axes, text, left - 8, y(at) + 4, font, "end", 0.5);
    }
    put(axes, "path", { d: `M${left} ${top}V${bottom}H${left + across}`, stroke: look.line, fill: "none" });
    named.forEach((row, k) => words(axes, row, left + across / 2, bottom + below - 4 - 17 * (named.length - 1 - k), { ...font, color: look.muted }, "middle"));
    if (yaxis.title) words(axes, yaxis.title.text, 0, 0, { ...font, color: look.muted }, "middle").setAttribute("transform", `translate(14 ${(top + bottom) / 2}) rotate(-90)`);
    const rule = (one) => {
      const over = one.xref === "x" ? `M${x(one.x0)} ${top}V${bottom}` : `M${left} ${y(one.y0)}H${left + across}`;
      put(one.layer === "above" ? group : axes, "path", { d: over, stroke: one.line.color, "stroke-width": one.line.width, "stroke-dasharray": DASHES[one.line.dash] });
    };
    (layout.shapes || []).filter((one) => one.layer !== "above").forEach(rule);
    const kinds = { scatter, bar, heatmap };
    for (const trace of data) kinds[trace.type](group, trace, x, y, font);
    (layout.shapes || []).filter((one) => one.layer === "above").forEach(rule);
    for (const one of layout.annotations || []) {
      const at = one.xref === "x" ? x(one.x) : left + across * one.x, up = one.yref === "y" ? y(one.y) - 4 : bottom - (bottom - top) * one.y + (one.yanchor === "top" ? 12 : -4);
      const anchor = { left: "start", center: "middle", right: "end" }[one.xanchor] || "middle", half = anchor === "middle" ? wide(one.text, small) / 2 : 0;
      words(group, one.text, Math.min(Math.max(at, half), width - half), up - (one.yshift || 0), { ...small, color: one.font?.color || look.muted }, anchor);
    }
    for (const { trace, x: at, y: down } of keys.placed) key(group, trace, 10 + at, height - keys.height + 18 + down, font);
    return svg;
  };
  const wrapped = (text, width, font) => {
    const found = [""];
    for (const word of bare(text).split(" ")) {
      const longer = `${found[found.length - 1]} ${word}`.trim();
      if (wide(longer, font) > width && found[found.length - 1]) found.push(word);
      else found[found.length - 1] = longer;
    }
    return found;
  };
  return { draw };
})();
