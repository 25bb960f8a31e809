// A rectangle divided into rectangles of given areas that are nearly square.

/** Return a box `{x, y, width, height}` for each size; sizes are positive, the largest first. */
export function divided(sizes, box) {
  const total = sizes.reduce((sum, size) => sum + size, 0);
  const scale = total ? (box.width * box.height) / total : 0;
  const areas = sizes.map((size) => size * scale);
  const boxes = [];
  let { x, y, width, height } = box;
  for (let start = 0; start < areas.length; ) {
    const side = Math.min(width, height);
    let stop = start + 1;
    let row = areas[start];
    let worst = longest(areas[start], areas[start], row, side);
    while (stop < areas.length) {
      const next = longest(areas[start], areas[stop], row + areas[stop], side);
      if (next > worst) break;
      worst = next;
      row += areas[stop];
      stop += 1;
    }
    const thickness = side ? row / side : 0;
    let at = 0;
    for (const area of areas.slice(start, stop)) {
      const length = thickness ? area / thickness : 0;
      boxes.push(width >= height ? { x, y: y + at, width: thickness, height: length } : { x: x + at, y, width: length, height: thickness });
      at += length;
    }
    if (width >= height) [x, width] = [x + thickness, Math.max(width - thickness, 0)];
    else [y, height] = [y + thickness, Math.max(height - thickness, 0)];
    start = stop;
  }
  return boxes;
}

/** Return the ratio of the sides of the longest part of a row. */
function longest(largest, smallest, row, side) {
  if (!side || !smallest || !row) return Infinity;
  return Math.max((side * side * largest) / (row * row), (row * row) / (side * side * smallest));
}
