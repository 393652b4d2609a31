"""One finished chain over small recordings, made once."""

import pytest

from bothways import run
from people import TINY, WINDOWS, Chain, write_people


@pytest.fixture(scope="session")
def chain(tmp_path_factory: pytest.TempPathFactory) -> Chain:
    """check, prepare, pretrain, finetune, evaluate on six people; treat it as read-only."""
    top = tmp_path_factory.mktemp("chain")
    data = write_people(top / "data")
    here = Chain(
        data, top / "labels.csv", top / "baseline.csv", top / "store", top / "pretrained", top / "finetuned", {}
    )
    here.results["check"] = run.check([data])
    here.results["prepare"] = run.prepare([data], here.store)
    here.results["pretrain"] = run.pretrain(here.store, here.pretrained, changes=[*TINY, *WINDOWS, "training.steps=20"])
    here.results["finetune"] = run.finetune(
        here.pretrained, here.store, here.labels, here.finetuned, changes=[*WINDOWS, "training.steps=40"]
    )
    here.results["evaluate"] = run.evaluate(here.finetuned)
    return here
