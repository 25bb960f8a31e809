// Returns texts whose contrast with what is behind them is below 4.5 to 1.
() => {
  const canvas = document.createElement("canvas").getContext("2d", { willReadFrequently: true });
  const mixed = (colors) => {
    for (const color of ["white", ...colors]) {
      canvas.fillStyle = color;
      canvas.fillRect(0, 0, 1, 1);
    }
    return [...canvas.getImageData(0, 0, 1, 1).data].slice(0, 3);
  };
  const light = (colors) => {
    const linear = mixed(colors).map((part) => part / 255)
      .map((part) => part <= 0.04045 ? part / 12.92 : ((part + 0.055) / 1.055) ** 2.4);
    return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2];
  };
  const behind = (element) => {
    const colors = [];
    for (let each = element; each; each = each.parentElement) colors.unshift(getComputedStyle(each).backgroundColor);
    return colors;
  };
  const found = [];
  for (const element of document.querySelectorAll("body *")) {
    const text = [...element.childNodes].filter((node) => node.nodeType === 3).map((node) => node.data).join("").trim();
    if (!text || !element.checkVisibility({ visibilityProperty: true }) || element.closest("svg, [disabled], [aria-disabled]")) continue;
    const back = behind(element);
    const [one, other] = [light(back), light([...back, getComputedStyle(element).color])].sort((a, b) => b - a);
    if ((one + 0.05) / (other + 0.05) < 4.5) found.push(`${text.slice(0, 40)} ${(one + 0.05) / (other + 0.05)}`);
  }
  return found;
}
