"""Named taps: interesting tensors of a pass, caught by the path of the `nn.Identity` that they go through."""

import difflib
from collections.abc import Iterable, Iterator
from contextlib import ExitStack, contextmanager

from torch import Tensor, nn

from bothways.encoder import SelfAttention
from bothways.errors import UserError


def tap_names(model: nn.Module) -> list[str]:
    """Returns the names of all taps, e.g. `encoder.layers.0.attention.scaled_scores`."""
    return [name for name, module in model.named_modules() if isinstance(module, nn.Identity)]


@contextmanager
def trace(model: nn.Module, names: Iterable[str]) -> Iterator[dict[str, Tensor]]:
    """Catches what goes through taps while the block runs; attention is written out, so that its weights exist.

    Tensors keep their graph, so a gradient can be asked for. Tokens are flat, without padding: [T D]; inside attention
    [B H L L] and so on. Where a model reads [CLS] alone, the last block has only that row; look at `model.encoder`
    with `rows=None` for all of them.

    Args:
        model: in eval mode, to see what a prediction sees.
        names: paths of taps, see `tap_names`.

    Yields:
        name -> tensor, filled when the model runs.

    Raises:
        UserError: no such tap (the nearest is named), or one that never ran in the block.
    """
    wanted, known = list(dict.fromkeys(names)), tap_names(model)
    for name in wanted:
        if name not in known:
            near = difflib.get_close_matches(name, known, n=1, cutoff=0.0)
            raise UserError(f"no tap {name!r}; did you mean {near[0]!r}?" if near else f"no tap {name!r} in this model")
    caught: dict[str, Tensor] = {}
    with ExitStack() as stack:
        for name in wanted:

            def keep(module: nn.Module, inputs: object, output: Tensor, name: str = name) -> None:
                caught[name] = output

            stack.callback(model.get_submodule(name).register_forward_hook(keep).remove)
        for module in model.modules():
            if isinstance(module, SelfAttention):
                stack.callback(setattr, module, "written_out", module.written_out)
                module.written_out = True
        yield caught
    never = [name for name in wanted if name not in caught]
    if never:
        raise UserError(f"tap {', '.join(never)} never ran; run the model inside the trace, on a path that reaches it")
