"""Where the parts meet: each command of the command line is a function of the same name here."""

from bothways.run.channel_curve import channel_curve
from bothways.run.check import check
from bothways.run.compare import compare
from bothways.run.embed import embed
from bothways.run.evaluate import evaluate
from bothways.run.export_onnx import export_onnx
from bothways.run.finetune import finetune
from bothways.run.label_curve import label_curve
from bothways.run.paste import paste
from bothways.run.predict import predict
from bothways.run.prepare import prepare
from bothways.run.pretrain import pretrain
from bothways.run.pretrained import Pretrained, load_pretrained
from bothways.run.probe import probe
from bothways.run.split import split
from bothways.run.text_curve import text_curve
from bothways.run.text_embed import text_embed
from bothways.run.text_evaluate import text_evaluate
from bothways.run.text_export import text_export
from bothways.run.text_fill_mask import text_fill_mask
from bothways.run.text_finetune import text_finetune
from bothways.run.text_import import text_import
from bothways.run.text_predict import text_predict
from bothways.run.text_prepare import text_prepare
from bothways.run.text_pretrain import text_pretrain
from bothways.run.text_show import text_show
from bothways.run.text_tokenizer import text_tokenizer
from bothways.run.walkthrough import walkthrough

__all__ = [
    "Pretrained",
    "channel_curve",
    "check",
    "compare",
    "embed",
    "evaluate",
    "export_onnx",
    "finetune",
    "label_curve",
    "load_pretrained",
    "paste",
    "predict",
    "prepare",
    "pretrain",
    "probe",
    "split",
    "text_curve",
    "text_embed",
    "text_evaluate",
    "text_export",
    "text_fill_mask",
    "text_finetune",
    "text_import",
    "text_predict",
    "text_prepare",
    "text_pretrain",
    "text_show",
    "text_tokenizer",
    "walkthrough",
]
