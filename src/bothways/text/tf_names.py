"""TensorFlow's names of BERT's weights, Google's and those of transformers' TF classes, to transformers' for PyTorch.

Google (google-research/bert): `bert/encoder/layer_0/attention/self/query/kernel`. transformers before version 5:
`tf_bert_for_pre_training/bert/encoder/layer_._0/attention/self/query/kernel:0`, in safetensors without its first part.
"""

import re
from collections.abc import Mapping

from torch import Tensor

from bothways.errors import UserError

TENSORFLOW = "TensorFlow"
_ROOTS = {"bert", "cls", "classifier", "qa_outputs"}
"""What a name of BERT begins with, after the name of its class."""
_TABLES = {"word_embeddings", "position_embeddings", "token_type_embeddings"}
_LEAVES = {
    "kernel": "weight", "gamma": "weight", "weight": "weight", "embeddings": "weight", "output_weights": "weight",
    "beta": "bias", "bias": "bias", "output_bias": "bias",
}  # fmt: skip
_TASKS = {"output_weights": "classifier.weight", "output_bias": "classifier.bias"}
"""Of Google's run_classifier.py, which stand alone."""


def from_tensorflow(weights: Mapping[str, Tensor], source: str) -> tuple[dict[str, Tensor], bool]:
    """Renames weights that have TensorFlow's names, and transposes its kernels, which are [in out].

    What is no weight of BERT (an optimizer's `adam_m`, `global_step`) keeps its name.

    Args:
        weights: by any names.
        source: the folder, for messages.

    Returns:
        The weights, and whether the names were TensorFlow's.

    Raises:
        UserError: two names are those of one weight.
    """
    if not any("/" in name for name in weights):
        return dict(weights), False
    renamed: dict[str, Tensor] = {}
    for name, tensor in weights.items():
        new = _renamed(name)
        if new in renamed:
            one, other = (" ".join(text[:80].split()) for text in (new, name))
            raise UserError(f"{source}: expected one weight {one}, got two (one as {other}); leave one out")
        kernel = name.removesuffix(":0").endswith("/kernel") and new != name and tensor.dim() == 2
        renamed[new] = tensor.t() if kernel else tensor
    return renamed, True


def _renamed(name: str) -> str:
    if name in _TASKS:
        return _TASKS[name]
    parts = name.removesuffix(":0").replace("_._", "/").split("/")
    parts = [part.rpartition("___")[2] for part in parts]  # `mlm___cls`: of two classes' one name
    first = next((i for i, part in enumerate(parts) if part in _ROOTS), None)
    if first is None:
        return name
    *parts, leaf = parts[first:]
    if leaf in _TABLES:  # Google's tables have no leaf of their own
        parts, leaf = [*parts, leaf], "weight"
    if leaf not in _LEAVES or not parts:
        return name
    if parts == ["cls", "squad"]:  # Google's run_squad.py
        parts = ["qa_outputs"]
    return re.sub(r"\blayer_(\d+)\b", r"layer.\1", ".".join([*parts, _LEAVES[leaf]]))
