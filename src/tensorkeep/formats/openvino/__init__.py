"""OpenVINO's models: a graph in XML (`.xml`), and the elements of its constants in a file beside it (`.bin`).

- `_xml`: elements of XML, without anything that an XML parser could be attacked with.
- `_model`: `parse_openvino`: the constants of a graph, and what it needs to run.
- `_places`: `place_constant`: where the elements of a constant are.
"""

from tensorkeep.formats.openvino._model import Constant, OpenVinoModel, begins_like_openvino, parse_openvino
from tensorkeep.formats.openvino._places import place_constant

__all__ = ["Constant", "OpenVinoModel", "begins_like_openvino", "parse_openvino", "place_constant"]
