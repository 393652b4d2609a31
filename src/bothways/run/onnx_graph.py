"""A model as an ONNX graph: traced, made smaller, run, and put in a model's place."""

import logging
import tempfile
import warnings
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from importlib import import_module
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from bothways.config import ModelConfig
from bothways.encoder import Rows
from bothways.errors import UserError
from bothways.heads import Batch, real_moments, real_positions
from bothways.model import Model, Output
from bothways.padded import Padded, own_outputs

TOLERANCE = 1e-4
"""Of a difference, beside 1 or the largest number of the output where that is more."""
OPSET = 20
MOST_BYTES = 2**31 - 2**24
"""Of a file: protobuf takes no more."""


@contextmanager
def _quiet() -> Iterator[None]:
    """What exporter and quantiser say of themselves is kept from the user: the graph is compared with the model."""
    handlers, disabled = logging.root.handlers[:], logging.root.manager.disable
    logging.disable(logging.ERROR)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            yield
    finally:
        logging.disable(disabled)
        logging.root.handlers[:] = handlers


def check_libraries() -> None:
    """Refuses where the libraries of the extra are missing, or cannot be loaded.

    Raises:
        UserError: one of them.
    """
    try:
        with _quiet():
            for name in ("onnx", "onnxruntime.quantization", "onnxscript"):
                import_module(name)
    except ImportError as problem:
        raise UserError(
            f"exporting needs onnx, onnxruntime and onnxscript ({problem}); `pip install 'bothways[onnx]'`"
        ) from None


def input_shapes(config: ModelConfig) -> dict[str, tuple[str | int, ...]]:
    """Returns the axes of all tensors that a model may read: a name where the length may vary."""
    if config.text is not None:
        return dict.fromkeys(("input_ids", "attention_mask", "token_type_ids"), ("batch", "length"))
    assert config.patches is not None
    assert config.signal is not None
    channels: str | int = len(config.patches.ch_names) if config.patches.tokens == "all_channels" else "channels"
    return {
        "signals": ("batch", channels, "samples"),
        "log_scale_uv": ("batch", channels),
        "positions": ("batch", channels, 2, 3),
        "patch_mask": ("batch", channels, "patches"),
        "baseline": ("batch", channels, "frequencies"),
    }


def trace(padded: Padded, example: Batch) -> Any:
    """Returns a model's graph, an `onnx.ModelProto`, of any number and length of inputs.

    Args:
        padded: the model.
        example: its inputs; no axis of which the length may vary has the length 1.

    Raises:
        UserError: the graph would be larger than a file may be.
    """
    size = sum(one.numel() * one.element_size() for one in {*padded.parameters(), *padded.buffers()})
    if size > MOST_BYTES:
        raise UserError(f"expected weights of {MOST_BYTES:,} bytes at most, as a file holds, got {size:,}")
    config = padded.model.config
    dims: dict[str | int, Any] = {"batch": torch.export.Dim("batch", min=1)}
    if config.text is not None:
        dims["length"] = torch.export.Dim("length", min=1, max=config.text.max_position_embeddings)
    else:
        assert config.patches is not None
        most = config.patches.max_patches if config.patches.positions == "learned" else None
        dims["channels"] = torch.export.Dim("channels", min=1)
        dims["patches"] = torch.export.Dim("patches", min=1, max=most)
        dims["samples"] = padded.model.embedding.patch_samples * dims["patches"]
    axes = input_shapes(config)
    shapes = [{i: dims[name] for i, name in enumerate(axes[one]) if name in dims} for one in padded.inputs]
    names = list(padded.outputs(example))
    with torch.no_grad(), _quiet():
        program = torch.onnx.export(
            padded, tuple(example[name] for name in padded.inputs), input_names=list(padded.inputs), output_names=names,
            dynamic_shapes=(tuple(shapes),), opset_version=OPSET, dynamo=True, verbose=False,
        )  # fmt: skip
    assert program is not None
    return program.model_proto


def quantise(graph: Any, config: ModelConfig) -> Any:
    """Returns a graph with weights in int8, whose inputs are made int8 as they come (onnxruntime, dynamic).

    Of EEG the front end stays as it is: a spectrum spans orders of magnitude, of which int8 has two.
    """
    import onnx
    from onnxruntime.quantization import QuantType, quantize_dynamic

    kept = [node.name for node in graph.graph.node if config.text is None and node.op_type in ("MatMul", "Gather")]
    with tempfile.TemporaryDirectory() as folder, _quiet():
        path = Path(folder) / "int8.onnx"
        quantize_dynamic(graph, path, weight_type=QuantType.QInt8, per_channel=True, nodes_to_exclude=kept)
        return onnx.load(path)


def to_bytes(graph: Any, facts: Mapping[str, str]) -> bytes:
    """Returns a graph as a file's content, with facts as its metadata and without what the tracer noted in it.

    The tracer's notes are names of files and lines of code on this machine.
    """
    import onnx

    clean = onnx.ModelProto()
    clean.CopyFrom(graph)
    for part in (*clean.graph.node, *clean.graph.value_info, *clean.graph.input, *clean.graph.output):
        part.ClearField("metadata_props")
        part.ClearField("doc_string")
    for one in (clean, clean.graph):
        one.ClearField("metadata_props")
        one.ClearField("doc_string")
    onnx.helper.set_model_props(clean, dict(facts))
    return clean.SerializeToString()


class Session:
    """An ONNX file's content, run by onnxruntime on the CPU."""

    def __init__(self, content: bytes) -> None:
        import onnxruntime

        options = onnxruntime.SessionOptions()
        options.log_severity_level = 3  # errors
        options.intra_op_num_threads = torch.get_num_threads()
        self._session = onnxruntime.InferenceSession(content, options, providers=["CPUExecutionProvider"])
        self.inputs = [one.name for one in self._session.get_inputs()]
        self.outputs = [one.name for one in self._session.get_outputs()]

    def __call__(self, batch: Batch) -> dict[str, Tensor]:
        """Returns the outputs of a batch, by name; of a batch of text what it lacks says that there is one segment."""
        given = {name: batch[name] for name in self.inputs if name in batch}
        if "input_ids" in given:
            given = {"token_type_ids": torch.zeros_like(batch["input_ids"]), **given}
            given = {name: given[name].long() for name in self.inputs}
        found = self._session.run(self.outputs, {name: one.cpu().numpy() for name, one in given.items()})
        return {name: torch.from_numpy(one) for name, one in zip(self.outputs, found)}


def difference(found: Mapping[str, Tensor], wanted: Mapping[str, Tensor], model: Model) -> float:
    """Returns the largest difference of two sets of outputs, in units of 1 or of the output's largest number.

    A number in its labels' unit counts in their SD. What is no number has to be none in both.
    """
    most = 0.0
    for name, theirs in wanted.items():
        ours, theirs = found[name].double(), theirs.double().cpu()
        if name == "value":
            head = next(iter(model.config.heads.values()))
            ours, theirs = (ours - head.mean) / head.sd, (theirs - head.mean) / head.sd
        same = (ours == theirs) | (ours.isnan() & theirs.isnan())
        gap = torch.where(same, 0.0, (ours - theirs).abs()).nan_to_num(torch.inf)
        size = theirs[theirs.isfinite()].abs().max() if bool(theirs.isfinite().any()) else theirs.new_zeros(())
        most = max(most, float(gap.max() / size.clamp_min(1))) if gap.numel() else most
    return most


class InPlace(Model):
    """A graph in a model's place: what measures a model measures it.

    Args:
        model: that it was made of; moved nowhere.
        session: the graph.
        compare: run the model, too.

    Attributes:
        largest_difference: of all that was computed, where it compares.
    """

    def __init__(self, model: Model, session: Session, *, compare: bool = False) -> None:
        nn.Module.__init__(self)
        self.config, self.embedding, self.heads = model.config, model.embedding, model.heads
        self.own, self.session, self.compare, self.largest_difference = model, session, compare, 0.0

    def forward(self, batch: Batch, *, with_losses: bool = False) -> Output:
        """Returns predictions in the model's form; no loss is computed."""
        found = self.session(batch)
        if self.compare:
            here = difference(found, own_outputs(self.own, batch), self.own)
            self.largest_difference = max(self.largest_difference, here)
        embedded = self.embedding(batch)
        (name,), device = self.heads, embedded.hidden.device
        kind = self.config.heads[name].kind
        if kind == "span":
            prediction = torch.stack([found["start_logits"], found["end_logits"]], dim=1).to(device)
        elif kind == "position":
            there = real_moments(embedded)
            logits = found["logits"].to(device)
            if self.config.text is None:  # the graph leaves [CLS] out
                logits = torch.cat([torch.zeros_like(logits[:, :1]), logits], dim=1)
            prediction = logits[there]
        else:
            prediction = (found["standardised"][:, None] if kind == "number" else found["logits"]).to(device)
        nothing = Rows(embedded.hidden.new_zeros(0, embedded.hidden.shape[2]), real_positions(embedded) & False)
        return Output({name: prediction}, {}, embedded, nothing)
