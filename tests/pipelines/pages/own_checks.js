// What axe-core does not look at; of contrast it leaves out texts of one character, and in drawings how
// they are filled.
() => {
  const found = [], root = document.scrollingElement;
  if (root.scrollWidth > root.clientWidth) found.push(`is as wide as ${root.scrollWidth} px`);
  if (document.scripts.length) found.push("has a script");
  const ids = [...document.querySelectorAll("[id]")].map(element => element.id);
  const twice = ids.filter((id, at) => ids.indexOf(id) < at);
  if (twice.length) found.push(`ids that are there twice: ${twice}`);
  const canvas = document.createElement("canvas").getContext("2d", {willReadFrequently: true});
  const light = (...colours) => {  // as WCAG 2.2 defines it, of colours one over the other
    canvas.clearRect(0, 0, 1, 1);
    for (const colour of colours) { canvas.fillStyle = colour; canvas.fillRect(0, 0, 1, 1); }
    const [r, g, b] = [...canvas.getImageData(0, 0, 1, 1).data].map(
      part => part / 255 <= 0.04045 ? part / 255 / 12.92 : ((part / 255 + 0.055) / 1.055) ** 2.4);
    return 0.2126 * r + 0.7152 * g + 0.0722 * b;
  };
  const written = element => element.getClientRects().length &&
    [...element.childNodes].some(child => child.nodeType === 3 && child.data.trim());
  for (const text of [...document.querySelectorAll("body *")].filter(written)) {
    const under = [], style = getComputedStyle(text), size = parseFloat(style.fontSize);
    for (let at = text; at; at = at.parentElement)
      under.unshift(getComputedStyle(at).backgroundColor);
    const drawn = text.closest("svg"), colours = ["white", ...under];
    const back = light(...colours), front = light(...colours, drawn ? style.fill : style.color);
    const contrast = (Math.max(back, front) + 0.05) / (Math.min(back, front) + 0.05);
    const enough = size >= 24 || (size >= 18.66 && style.fontWeight >= 700) ? 3 : 4.5;
    const start = text.textContent.trim().slice(0, 40);
    if (contrast < enough) found.push(`contrast ${contrast.toFixed(2)} of "${start}"`);
  }
  return found;
}
