"""Models of every head that a file can tell, tiny, and their batches without anything hidden."""

from dataclasses import replace

import torch
from torch import Tensor

from bothways.config import HeadConfig, ModelConfig
from bothways.model import Model
from models import BERT, CLASSES, ENCODER, FORMS, TEXT, Form, embedding_of
from models import SEQUENCE as ONE_CLASS

SEVERAL = HeadConfig(kind="several", classes=CLASSES, pool="mean")
NUMBER = HeadConfig(kind="number", classes=("age",), mean=5000.0, sd=700.0, pool="attention")
POSITION = HeadConfig(kind="position", classes=CLASSES)
SPAN = HeadConfig(kind="span")
FAST = ENCODER.model_copy(
    update={"gated": True, "hidden_act": "silu", "qkv_bias": False, "linear_bias": False, "mixed_layers": 2}
)


def _with(name: str, **heads: HeadConfig) -> Form:
    """A form of `models` with other heads."""
    return replace(FORMS[name], config=FORMS[name].config.model_copy(update={"heads": heads}))


def _text(update: dict[str, object], **heads: HeadConfig) -> Form:
    return Form(ModelConfig.model_validate({"encoder": BERT, "text": TEXT, "heads": heads} | update))


GRAPHS: dict[str, Form] = {
    "text words and next sentence": FORMS["bert"],
    "text class, no segments, no norm": FORMS["tiny_classifier"],
    "text class, pooler": _text({"pooler": True}, sequence=ONE_CLASS),
    "text class, attention": FORMS["text_attention_pool"],
    "text class, fast, mixed layers": _text({"encoder": FAST}, sequence=ONE_CLASS.model_copy(update={"pool": "mean"})),
    "text several": _text({}, several=SEVERAL),
    "text number": _text({}, number=NUMBER),
    "text tags": _text({}, position=POSITION),
    "text answers, fast": _text({"encoder": FAST}, span=SPAN),
    "text vectors": _text({}),
    "eeg class, learned times, baseline": _with("eeg_channels", sequence=ONE_CLASS),
    "eeg class, all channels, mean": _with("eeg_all_channels", sequence=ONE_CLASS.model_copy(update={"pool": "mean"})),
    "eeg several, samples": _with("walkthrough", several=SEVERAL),
    "eeg number, attention": _with("eeg_attention_pool", number=NUMBER),
    "eeg moments": _with("eeg_moments", position=POSITION),
    "eeg moments, all channels": _with("eeg_all_channels", position=POSITION),
    "eeg events": _with("eeg_moments", span=SPAN),
    "eeg vectors": _with("eeg_moments", reconstruction=FORMS["eeg_attention_pool"].config.heads["reconstruction"]),
}
HIDDEN = ("masked", "action", "replacement", "mlm_labels")


def build(form: Form, seed: int = 0) -> Model:
    """Makes a model with large weights, so that a mix-up shows."""
    model = Model(form.config, embedding_of(form.config)).eval()
    draw = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.copy_(torch.randn(parameter.shape, generator=draw) * 0.3)
    return model


def batch_of(form: Form) -> dict[str, Tensor]:
    """The form's batch, with padding and with nothing hidden."""
    batch = {name: one for name, one in form.batch().items() if name not in HIDDEN}
    if form.eeg:
        batch["patch_mask"][1, :, 4] = False  # a moment of which nothing is seen
    return batch
