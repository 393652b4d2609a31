"""Every setting of a run, validated."""

from typing import Annotated, Any, Literal, get_args

from pydantic import BaseModel, ConfigDict, Field, model_validator

Fraction = Annotated[float, Field(ge=0, le=1)]
Positive = Annotated[float, Field(gt=0)]
Count = Annotated[int, Field(ge=1)]
Task = Literal["window", "moment", "event"]
"""What is labelled: a window as a whole, each moment (patch) of it, or onset and end of the one event in it."""
LabelKind = Literal["classes", "number", "several"]
"""What a label is: one of several classes, a number, or any number of classes at once."""


class Settings(BaseModel):
    """Base of all settings: frozen, and an unknown key is an error."""

    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False)

    @model_validator(mode="before")
    @classmethod
    def _read_none(cls, values: Any) -> Any:
        """TOML has no null: the word `none` stands for it where a setting may be absent."""
        if not isinstance(values, dict):
            return values
        absent = {name for name, f in cls.model_fields.items() if type(None) in get_args(f.annotation)}
        return {name: None if value == "none" and name in absent else value for name, value in values.items()}


class EncoderConfig(Settings):
    """The encoder, in BERT's words (Devlin et al. 2019, section 3; names as in transformers' BertConfig)."""

    hidden_size: Count = 64
    num_hidden_layers: Count = 4
    num_attention_heads: Count = 4
    intermediate_size: Count = 256
    hidden_act: Literal["gelu", "gelu_tanh", "relu", "silu"] = "gelu"
    gated: bool = False
    """Feed-forward with a gate: act(x W_g) * (x W_1) (GLU, Shazeer 2020) instead of act(x W_1)."""
    norm: Literal["post", "pre"] = "pre"
    """Layer norm after each residual sum (BERT, both references' first form) or before each sub-layer."""
    final_norm: bool = True
    """One more layer norm after the last block; only for `norm = "pre"`."""
    layer_norm_eps: Positive = 1e-12
    qkv_bias: bool = True
    linear_bias: bool = True
    """Biases of the attention output and the feed-forward layers."""
    hidden_dropout_prob: Fraction = 0.1
    attention_probs_dropout_prob: Fraction = 0.0
    initializer_range: Positive = 0.02
    mixed_layers: Count = 1
    """What the heads read is the mean of the outputs of so many last layers (Devlin et al. 2019, section 5.3)."""

    @model_validator(mode="after")
    def _check(self) -> "EncoderConfig":
        if self.mixed_layers > self.num_hidden_layers:
            raise ValueError(f"mixed_layers {self.mixed_layers}: there are {self.num_hidden_layers} layers; lower it")
        if self.hidden_size % self.num_attention_heads:
            raise ValueError(
                f"hidden_size {self.hidden_size} is not a multiple of num_attention_heads "
                f"{self.num_attention_heads}; change one of them"
            )
        if self.norm == "post" and self.final_norm:
            raise ValueError('final_norm belongs to norm = "pre"; set final_norm = false')
        return self


ENCODER_SIZES: dict[str, dict[str, int]] = {
    "nano": {"num_hidden_layers": 4, "hidden_size": 64, "num_attention_heads": 4, "intermediate_size": 256},
    "tiny": {"num_hidden_layers": 6, "hidden_size": 128, "num_attention_heads": 4, "intermediate_size": 512},
    "small": {
        "num_hidden_layers": 8,
        "hidden_size": 256,
        "num_attention_heads": 8,
        "intermediate_size": 1024,
    },
    "base": {
        "num_hidden_layers": 12,
        "hidden_size": 512,
        "num_attention_heads": 8,
        "intermediate_size": 2048,
    },
}


class TextConfig(Settings):
    """The text front end: sizes of BERT's three embedding tables."""

    vocab_size: Count = 30522
    max_position_embeddings: Count = 512
    type_vocab_size: Annotated[int, Field(ge=0)] = 2
    """Segments; 0 = no segment embedding (the tiny classifier of the second reference)."""
    norm: bool = True
    """Layer norm after the sum of the embeddings, as in BERT."""
    pad_token_id: int | None = 0


class SignalConfig(Settings):
    """What the numbers in a store are: the part of the input contract that preparing a recording decides."""

    unit: Literal["uV"] = "uV"
    sfreq_hz: Positive = 200.0
    band_hz: tuple[Positive, Positive] = (0.5, 70.0)
    """Band-pass; the upper edge is lowered, and said so, where a recording's own rate does not reach it."""
    notch_hz: Positive | None = 50.0
    """Mains frequency that is taken out with its harmonics; None = none."""
    reference: Literal["file", "average"] = "file"
    """`file` = as recorded; `average` = mean of the good channels subtracted."""
    normaliser: Literal["recording_robust"] = "recording_robust"
    """Per recording and channel: minus the median, divided by the robust SD, clipped at ±15."""

    @model_validator(mode="after")
    def _check(self) -> "SignalConfig":
        low, high = self.band_hz
        if not low < high < self.sfreq_hz / 2:
            raise ValueError(
                f"band_hz {low:g}-{high:g} does not lie below half of sfreq_hz {self.sfreq_hz:g}; "
                "lower the band or raise the rate"
            )
        return self

    def differences(self, other: "SignalConfig") -> dict[str, tuple[Any, Any]]:
        """Returns the fields in which two contracts differ for a model: name -> (here, other).

        50 and 60 Hz are the same thing, mains taken out; with and without a notch are not.
        """
        mine, theirs = self.model_dump(), other.model_dump()
        if self.notch_hz is not None and other.notch_hz is not None:
            mine["notch_hz"] = theirs["notch_hz"]
        return {name: (mine[name], theirs[name]) for name in mine if mine[name] != theirs[name]}


class PatchConfig(Settings):
    """The EEG front end: how a window becomes a sequence of vectors."""

    tokens: Literal["channel", "all_channels"] = "channel"
    """One token per channel and patch, any montage; or the walkthrough's form, all channels flattened in one."""
    ch_names: tuple[str, ...] = ()
    """Fixed order of channels; needed by, and only for, `tokens = "all_channels"`; empty = taken from the store."""
    patch_s: Positive = 1.0
    max_patches: Count = 60
    """Longest window in patches (learned positions; the sinusoidal ones have no limit)."""
    features: tuple[Literal["samples", "spectrum", "amplitude"], ...] = ("samples", "spectrum", "amplitude")
    """What a patch's vector holds: robust-scaled samples; log power spectrum in microvolts, standardised; log of
    the robust SD that the scaling took out."""
    spectrum_hz: tuple[Positive, Positive] = (1.0, 45.0)
    baseline: bool = False
    """Subtract each subject's resting log spectrum (a calibration without labels)."""
    positions: Literal["sinusoidal", "learned"] = "sinusoidal"
    """Position in time; where a channel lies is a separate embedding of its coordinates."""

    @model_validator(mode="after")
    def _check(self) -> "PatchConfig":
        if not self.features or len(set(self.features)) != len(self.features):
            raise ValueError('features must name "samples", "spectrum" or "amplitude", each once')
        if set(self.features) == {"amplitude"}:
            raise ValueError('features need "samples" or "spectrum": "amplitude" alone has nothing to rebuild')
        if self.ch_names and self.tokens != "all_channels":
            raise ValueError('ch_names belongs to tokens = "all_channels"; remove it')
        if self.baseline and "spectrum" not in self.features:
            raise ValueError('baseline needs "spectrum" in features: it is subtracted from the spectrum')
        return self


class Hiding(Settings):
    """How many positions are hidden, and what stands in their place (Devlin et al. 2019, section 3.1)."""

    ratio: Annotated[float, Field(gt=0, lt=1)] = 0.15
    mask: Fraction = 0.8
    """Share of the hidden positions that get [MASK]; BERT: 0.8."""
    random: Fraction = 0.1
    """Share that gets another position's content, of text any token; BERT: 0.1. The rest stays (BERT: 0.1)."""

    @model_validator(mode="after")
    def _check(self) -> "Hiding":
        if self.mask + self.random > 1:
            raise ValueError(f"mask {self.mask} + random {self.random} is over 1; lower one of them")
        return self


class MaskingConfig(Hiding):
    """Which positions of EEG are hidden, and by what."""

    kind: Literal["block", "random"] = "block"
    """`block` = stretches in space and time; `random` = single positions, as BERT and the walkthrough."""
    ratio: Annotated[float, Field(gt=0, lt=1)] = 0.55
    block_space: Fraction = 0.4
    block_time: Fraction = 0.3
    """Largest extent of one block, as shares of the channels and of the window."""
    mask: Fraction = 1.0
    random: Fraction = 0.0


class ObjectiveConfig(Settings):
    """Masked reconstruction: the losses and their weights."""

    loss: Literal["smooth_l1", "mse"] = "smooth_l1"
    samples_weight: Annotated[float, Field(ge=0)] = 1.0
    spectrum_weight: Annotated[float, Field(ge=0)] = 1.0
    cls_weight: Annotated[float, Field(ge=0)] = 0.5
    """Weight of rebuilding the hidden patches from [CLS] and their place alone; 0 = no such decoder."""


class HeadConfig(Settings):
    """One head of a model; which fields matter depends on `kind`."""

    kind: Literal[
        "reconstruction", "cls_reconstruction", "mlm", "nsp", "sequence", "number", "several", "position", "span"
    ]
    weight: Annotated[float, Field(ge=0)] = 1.0
    """Of this head's loss in the sum."""
    features: dict[str, Count] = {}
    """Reconstruction: what is rebuilt and how many numbers each is."""
    feature_weights: dict[str, float] = {}
    """Reconstruction: weight of each feature's loss; 1 where not given."""
    loss: Literal["smooth_l1", "mse"] = "smooth_l1"
    """Reconstruction and number."""
    classes: tuple[str, ...] = ()
    """Sequence, several and position heads: names of the classes, in the order of the outputs; number: its name."""
    class_weights: tuple[Annotated[float, Field(ge=0)], ...] = ()
    """Of each class in the loss (several: of its presence, its absence being 1); empty = all count the same."""
    mean: float = 0.0
    sd: Positive = 1.0
    """Number: of the training windows, by which it is standardised; a value is output × `sd` + `mean`."""
    pool: Literal["cls", "mean", "attention"] = "cls"
    """Sequence, number and several: [CLS], the mean of the other positions, or their sum by a learned query's
    weights."""
    dropout: Fraction = 0.0

    @model_validator(mode="after")
    def _check(self) -> "HeadConfig":
        if len(self.class_weights) not in (0, len(self.classes)):
            raise ValueError(
                f"class_weights: expected none or one for each of the {len(self.classes)} classes, got "
                f"{len(self.class_weights)}"
            )
        return self


class ModelConfig(Settings):
    """All that is needed to build a model again: one front end, the encoder, the heads."""

    encoder: EncoderConfig
    patches: PatchConfig | None = None
    text: TextConfig | None = None
    signal: SignalConfig | None = None
    """EEG: the contract of the recordings that the model was trained on."""
    pooler: bool = False
    """BERT's dense layer and tanh on [CLS], read by the NSP and sequence heads."""
    heads: dict[str, HeadConfig] = {}

    @model_validator(mode="after")
    def _check(self) -> "ModelConfig":
        if (self.patches is None) == (self.text is None):
            raise ValueError("expected one front end: patches (EEG) or text")
        return self


class WindowConfig(Settings):
    """How recordings are cut when they are read."""

    window_s: Positive = 10.0
    stride_s: Positive = 10.0
    """From one window to the next; a window's length where it is not given."""
    jitter_s: Annotated[float, Field(ge=0)] = 0.0
    """In training, each window starts up to this much earlier or later, drawn per (seed, epoch, window)."""
    min_overlap: Annotated[float, Field(gt=0, le=1)] = 1.0
    """Share of a window that a label must cover. 1 = windows are cut inside each labelled stretch, from its beginning;
    below 1 they lie on a regular grid over the recording."""

    @model_validator(mode="before")
    @classmethod
    def _follow(cls, values: Any) -> Any:
        """Windows that are shortened or lengthened would else leave signal out or overlap, without a word."""
        if isinstance(values, dict) and "window_s" in values:
            return {"stride_s": values["window_s"], **values}
        return values


class LabelConfig(Settings):
    """What a label is, which events are which class, and what a moment is that has no label or several."""

    kind: LabelKind = "classes"
    """`classes`: a label is one class. `number`: an age, a score; it is learned standardised by the training windows
    and predicted in its own unit. `several`: any number of classes at once, with `;` or `|` between them
    (`spike;slow`); an empty cell says that none of them is there, and so does `;`, also as `background`; labels that
    overlap hold together. No row, or `n/a`, is no label; of numbers and single classes an empty cell, too."""
    map: dict[str, Annotated[str, Field(min_length=1)]] = {}
    """Label as given -> class: a name, else a regular expression that fits the whole label; upper and lower case
    differ (`(?i)` before a pattern: they do not). A name goes before a pattern, the first of several patterns counts,
    labels that nothing fits are no class. Empty = every label is a class of its own name."""
    column: Annotated[str, Field(min_length=1)] = "label"
    """Of a CSV, the column that holds the labels, e.g. `group` of BIDS's participants.tsv."""
    duration_s: Positive | None = None
    """Of events that state none; without it they are left out."""
    priority: tuple[str, ...] = ()
    """Classes of which the earlier wins where labels overlap, and over those not named; else an overlap is an error."""
    background: Annotated[str, Field(min_length=1)] | None = None
    """Class of all time without a label, e.g. `bckg`; without it such time gives no window."""

    @model_validator(mode="after")
    def _check(self) -> "LabelConfig":
        unfit = {"number": ("map", "priority", "background"), "several": ("priority",)}.get(self.kind, ())
        if odd := [name for name in unfit if getattr(self, name)]:
            raise ValueError(f'{" and ".join(odd)} have no meaning with kind = "{self.kind}"; leave them out')
        return self


class EventConfig(Settings):
    """From probabilities over time to events.

    In this order: decide each moment, close short gaps, drop what is too short, merge what is close, split what is too
    long. Nothing is done that is not set.
    """

    decision: Literal["threshold", "argmax"] = "threshold"
    """`threshold` = each class by itself, so that two may hold at once; `argmax` = the most probable class of each
    moment."""
    background: tuple[str, ...] = ()
    """Classes that are no event, e.g. `bckg`."""
    enter: Fraction = 0.5
    """An event begins at the first moment whose probability is at least this."""
    leave: Fraction | None = None
    """It ends before the first moment whose probability is below this; none = `enter`, no hysteresis."""
    thresholds: dict[str, tuple[Fraction, Fraction]] = {}
    """Class -> its own enter and leave."""
    min_gap_s: Annotated[float, Field(ge=0)] = 0.0
    """Shorter gaps inside an event are closed, before its duration is judged."""
    min_duration_s: Annotated[float, Field(ge=0)] = 0.0
    """Shorter events are dropped."""
    merge_s: Annotated[float, Field(ge=0)] = 0.0
    """Events of a class that are closer than this are one; never over a gap or what no window covers."""
    max_duration_s: Positive | None = None
    """Longer events are split into pieces of at most this and the rest."""

    @model_validator(mode="after")
    def _check(self) -> "EventConfig":
        pairs = {"enter and leave": (self.enter, self.enter if self.leave is None else self.leave), **self.thresholds}
        for name, (enter, leave) in pairs.items():
            if leave > enter:
                raise ValueError(f"{name}: leave {leave:g} is above enter {enter:g}; lower it")
        if self.decision == "argmax" and (self.thresholds or self.leave is not None or self.enter != 0.5):
            raise ValueError('enter, leave and thresholds belong to decision = "threshold"; remove them')
        if both := set(self.background) & set(self.thresholds):
            raise ValueError(f"thresholds of {', '.join(sorted(both))}, which background says is no event; remove one")
        return self


EVENT_PRESETS: dict[str, dict[str, float]] = {
    # Dan et al. 2024, Epilepsia: what is closer than 90 s is one event, what is longer than 5 min is cut. A seizure
    # lasts 10 s or more (Hirsch et al. 2021, ACNS terminology).
    "szcore": {"min_duration_s": 10.0, "merge_s": 90.0, "max_duration_s": 300.0},
}


class TrainingConfig(Settings):
    """The training loop: AdamW, warm-up, then a rate that falls to the run's end."""

    steps: Count = 1000
    minutes: Positive | None = None
    """A budget of time instead of `steps`: the schedule goes by the time used, evaluations and checkpoints included."""
    batch_size: Count | Literal["auto"] = 32
    """Samples in a step, of all processes together; `auto` = the largest power of two that memory holds."""
    accumulate: Count = 1
    """Parts that a process computes a step in, one after the other: less memory, the same gradient."""
    learning_rate: Positive = 1e-3
    schedule: Literal["cosine", "linear", "constant", "stable"] = "cosine"
    """After the warm-up; `stable` = constant, then linear to 0 in the last fifth."""
    warmup_fraction: Fraction = 0.1
    weight_decay: Annotated[float, Field(ge=0)] = 0.05
    """Not applied to biases, norms and single vectors."""
    layer_decay: Annotated[float, Field(gt=0, le=1)] = 1.0
    """Each layer's rate as a share of the one above it, the heads' being 1 (Clark et al. 2020, ELECTRA, appendix A)."""
    head_first: Fraction = 0.0
    """Share of the run in which the heads alone learn, so that a fresh head does not distort pretrained features; after
    it all do (Kumar et al. 2022, ICLR, "Fine-Tuning can Distort Pretrained Features")."""
    freeze: tuple[str, ...] = ()
    """Parts that stay as they are, by the start of their names: `embedding`, `encoder.layers.0`, …"""
    beta2: Annotated[float, Field(ge=0, lt=1)] = 0.98
    max_grad_norm: Positive | None = 1.0
    """Longer gradients are shortened to it; `none` = never."""
    ema: Annotated[float, Field(ge=0, lt=1)] = 0.0
    """Decay of an exponential moving average of the weights, which is evaluated and kept instead of them; 0 = off."""
    precision: Literal["auto", "float32", "bf16"] = "auto"
    """`auto` = bf16 autocast on an accelerator that has it, float32 elsewhere."""
    gradient_checkpointing: bool = False
    """Compute each layer twice instead of keeping what it passes on: less memory, about a third more time."""
    shard: bool = False
    """Divide weights, gradients and optimizer state over the processes (FSDP2) instead of a copy for each (DDP)."""
    seed: Annotated[int, Field(ge=0, lt=2**31)] = 0
    evaluations: Count = 4
    """Measured so often, evenly spread, the last after the last step."""
    patience: Annotated[int, Field(ge=0)] = 0
    """Stop after so many evaluations without a better one, and keep the weights of the best; 0 = never."""
    log_every: Count = 50
    checkpoint_every_s: Annotated[float, Field(ge=0)] = 300.0
    """Beside those at each evaluation and when the run is interrupted."""
    keep: Count = 2
    """Newest checkpoints that stay, beside the best."""
    tensorboard: bool = False
    """Write the log for TensorBoard, too; needs the `tensorboard` extra."""
    workers: Annotated[int, Field(ge=0)] = 0


ANY_TIME = ("log_every", "checkpoint_every_s", "keep", "tensorboard", "workers")
"""Settings of the training that may change when an interrupted run goes on; the others would change what comes out."""


class PretrainConfig(Settings):
    """`bothways eeg pretrain`."""

    encoder: EncoderConfig = EncoderConfig()
    patches: PatchConfig = PatchConfig()
    windows: WindowConfig = WindowConfig()
    masking: MaskingConfig = MaskingConfig()
    objective: ObjectiveConfig = ObjectiveConfig()
    training: TrainingConfig = TrainingConfig()
    validation_fraction: Annotated[float, Field(ge=0, lt=1)] = 0.1
    """Share of the subjects kept out to measure the reconstruction error on."""

    @model_validator(mode="after")
    def _check(self) -> "PretrainConfig":
        weights = {"samples": self.objective.samples_weight, "spectrum": self.objective.spectrum_weight}
        if not any(weights[name] for name in self.patches.features if name in weights):
            raise ValueError("nothing to learn: the objective's weight of every feature of the patches is 0; raise one")
        return self


class FinetuneConfig(Settings):
    """`bothways eeg finetune`; `encoder` and `patches` are used by `--from scratch` only."""

    task: Task = "window"
    """`window`: its label, from [CLS]. `moment`: a label for each patch's time, from all its electrodes. `event`: onset
    and end of the one event that a window holds, or that it holds none; there is one class beside
    `labels.background`."""
    encoder: EncoderConfig = EncoderConfig()
    patches: PatchConfig = PatchConfig()
    windows: WindowConfig = WindowConfig()
    labels: LabelConfig = LabelConfig()
    training: TrainingConfig = TrainingConfig(steps=300, learning_rate=3e-4, batch_size=16)
    pool: Literal["cls", "mean", "attention"] = "cls"
    """What the class is read from; `attention` = all positions but [CLS], weighted by one learned query."""
    head_dropout: Fraction = 0.1
    freeze_encoder: bool = False
    class_weights: Literal["none", "balanced"] = "balanced"
    """In the loss; `balanced` = all classes weigh the same, or of several at once their presence and absence."""
    number_loss: Literal["mse", "smooth_l1"] = "mse"
    """Of `labels.kind = "number"`, in training SD; `smooth_l1` minds errors beyond one SD less."""
    train_fraction: Annotated[float, Field(gt=0, lt=1)] = 0.6
    validation_fraction: Annotated[float, Field(ge=0, lt=1)] = 0.2
    """Shares of the subjects where no split file is given; the rest are tested on."""
    labelled_subjects: Annotated[int, Field(ge=0)] = 0
    """Train on the labels of this many of the split's training subjects, nested by seed; 0 = all."""

    @model_validator(mode="after")
    def _check(self) -> "FinetuneConfig":
        if self.task != "window" and self.labels.kind != "classes":
            raise ValueError(
                f'task = "{self.task}" needs labels.kind = "classes", got "{self.labels.kind}": numbers, and several '
                'classes at once, are told of whole windows; use task = "window"'
            )
        return self
