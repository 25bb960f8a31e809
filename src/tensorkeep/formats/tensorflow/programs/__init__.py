"""TensorFlow's programs: which of their operators do more than compute. Nothing is run.

- `_operators`: the operators.
- `_saved_objects`: the objects beside a graph.
- `_graphs`: the graphs of a program.
- `_file_names`: who names the files that it reads and writes.
- `_deeds`: what it does.
"""

from tensorkeep.formats.tensorflow.programs._deeds import Deed, deeds_of
from tensorkeep.formats.tensorflow.programs._graphs import Program, ProgramReader
from tensorkeep.formats.tensorflow.programs._operators import COMPUTING

__all__ = ["COMPUTING", "Deed", "Program", "ProgramReader", "deeds_of"]
