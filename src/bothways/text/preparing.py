"""Making a corpus: documents are split and tokenised in chunks, wherever that is done, and put together at the end.

A finished chunk is one file in the work folder, named by a hash of its documents. Whatever stops the work, the next
call with the same output goes on with what is finished, as far as the documents are the same.
"""

import hashlib
import inspect
import json
import os
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import closing
from dataclasses import dataclass
from functools import lru_cache
from itertools import chain
from pathlib import Path
from typing import Any
from zipfile import BadZipFile

import numpy as np
import tokenizers
from jaxtyping import Shaped
from tokenizers.normalizers import BertNormalizer
from tokenizers.pre_tokenizers import BertPreTokenizer

from bothways import __version__
from bothways.errors import UserError
from bothways.files import check_output, new_folder, replacing, write_json, write_text
from bothways.making import check_workers, lost_reason, most_workers, work, work_folder
from bothways.progress import progress
from bothways.text.corpus import FORMAT_VERSION, HEAD, Corpus, digest_of
from bothways.text.documents import Documents
from bothways.text.sentences import Splitter, split_sentences
from bothways.text.tokenizer import TOKENIZER, Tokenizer, tokenizer_files
from bothways.workers import Results

CHUNK_CHARACTERS = 2**21
"""Of documents that are worked on at once; one may be longer."""
WORTH_BYTES = 2**24
"""So much text makes up for the start of a process, which imports torch; one process tokenises with all cores, too."""
MOST_UNKNOWN = 0.05
"""Of the tokens; above it the share is a note."""
_AT_ONCE, _JOINED = 1024, 32
"""Sentences that are tokenised together, and those that are joined for it."""
_SEP = "[SEP]"
_MEGABYTE = 10**6


@dataclass(frozen=True)
class Chunk:
    """Some documents to tokenise into `folder`."""

    index: int
    texts: list[str]
    places: list[tuple[int, int]]
    """Of each its file's number and the line."""
    folder: Path
    tokenizer: Path
    split: Splitter
    read: int
    """Bytes of the corpus that are read with it."""

    def name(self) -> str:
        """Returns a hash of the documents and their places."""
        digest = hashlib.sha256(json.dumps(self.places).encode())
        for text in self.texts:
            digest.update(hashlib.sha256(text.encode("utf-8", "surrogatepass")).digest())
        return digest.hexdigest()[:32]


@dataclass(frozen=True)
class Made:
    """A chunk that is finished: the name of its file, and how much is in it."""

    name: str
    counts: dict[str, int]
    reused: bool = False


def prepare_corpus(
    documents: Documents,
    tokenizer: Tokenizer,
    out: str | Path,
    *,
    split: Splitter = split_sentences,
    source: str | None = None,
    overwrite: bool = False,
    workers: int | None = None,
    dask: str | None = None,
) -> tuple[Corpus, int]:
    """Tokenises documents into a corpus; it is the same whoever did the work, and in whatever order.

    Args:
        documents: they are read once.
        tokenizer: gives the ids; it is written into the corpus.
        out: the corpus's folder; made in a hidden work folder beside it and moved into place when whole. A call that
            was stopped is taken up by the next one.
        split: makes sentences of a document; a function of a module, so that another process finds it.
        source: what it comes from, kept in its head; if none, `Documents.fingerprint`.
        overwrite: replace an existing `out`.
        workers: processes; by default one for each core, fewer where there is little to do or little memory. A single
            one tokenises with all cores, but splits with one.
        dask: address of a Dask cluster that does the work, with the same folders under the same names.

    Returns:
        The corpus, and how many of its chunks a stopped call had finished.

    Raises:
        UserError: no document has a word; `out` cannot be written, exists, or is being written; a process of the work
            ended; the cluster does not answer, or no longer.
        KeyboardInterrupt: as it came, with what the next call can go on with.
    """
    out = Path(out)
    check_workers(workers, dask)
    check_output(out, overwrite=overwrite)
    n_workers = workers or max(1, min(most_workers(), documents.total_bytes // WORTH_BYTES))
    settings = {
        "documents": documents.separator, "column": documents.column, "encoding": documents.encoding,
        "sentences": _named(split),
        "tokenizer_sha256": hashlib.sha256(tokenizer.to_str().encode()).hexdigest(),
    }  # fmt: skip
    source = documents.fingerprint() if source is None else source
    with work_folder(out, "chunks", ".npz", dask) as at:
        at.set_up({"format_version": FORMAT_VERSION, "version": __version__, **settings})
        write_text(at.path / TOKENIZER, tokenizer.to_str())
        chunks = _chunks(documents, at.done.absolute(), (at.path / TOKENIZER).absolute(), split)
        made = _work(chunks, documents, n_workers, dask)
        with new_folder(out, overwrite=overwrite, temporary=at.whole) as folder:
            totals = _put_together(folder, at.done, made, tokenizer.size)
            found = documents.summary()
            if totals["tokens"] == totals["unknown"]:
                raise UserError(
                    f"{', '.join(map(str, documents.paths))}: expected documents with words that the tokenizer knows, "
                    f"found none{documents.first_reason()}; check the corpus, and that the tokenizer is of its language"
                )
            if totals["unknown"] > MOST_UNKNOWN * totals["tokens"]:
                share = totals["unknown"] / totals["tokens"]
                found["notes"]["unknown_words"] = [
                    f"{share:.1%} of the tokens are [UNK], words of which nothing is learned; a tokenizer of this "
                    "text knows more of them"
                ]
            if totals["special"]:
                found["notes"]["special_tokens"] = [
                    f"special tokens are written in the text, {totals['special']:,} times; none of them is ever hidden"
                ]
            for name, content in tokenizer_files(tokenizer).items():
                write_text(folder / name, content)
            totals["empty_documents"] += found["empty_documents"]
            versions = {"bothways": __version__, "tokenizers": tokenizers.__version__}
            head = {
                "format_version": FORMAT_VERSION, "versions": versions, "source": source, "settings": settings,
                "totals": totals,
            }  # fmt: skip
            write_json(folder / HEAD, head | {k: found[k] for k in ("files", "skipped", "left_out", "notes")})
        (at.path / TOKENIZER).unlink()
    return Corpus.open(out), sum(one.reused for one in made)


def _named(split: Splitter) -> str:
    """Returns the name of a splitter; of one that is not ours also a hash of its code, which may change."""
    name = f"{split.__module__}.{getattr(split, '__qualname__', type(split).__qualname__)}"
    if split.__module__.startswith("bothways."):
        return name
    try:
        return f"{name} {hashlib.sha256(inspect.getsource(split).encode()).hexdigest()[:16]}"
    except (OSError, TypeError):  # no function, or one that was typed in
        return name


def _chunks(documents: Documents, folder: Path, tokenizer: Path, split: Splitter) -> Iterator[Chunk]:
    texts: list[str] = []
    places: list[tuple[int, int]] = []
    numbers: dict[str, int] = {}
    size = index = 0

    def chunk() -> Chunk:
        return Chunk(index, texts, places, folder, tokenizer, split, documents.bytes_read)

    for one in documents:
        # Its file comes to the list of those that were read only when it is finished.
        texts.append(one.text)
        places.append((numbers.setdefault(one.file, len(documents.files)), one.line))
        size += len(one.text)
        if size >= CHUNK_CHARACTERS:
            yield chunk()
            texts, places, size, index = [], [], 0, index + 1
    yield chunk()


def _work(chunks: Iterator[Chunk], documents: Documents, n_workers: int, dask: str | None) -> list[Made]:
    """Does the chunks and returns them in order."""
    made: dict[int, Made] = {}
    alone = n_workers == 1 and dask is None
    results = _ahead(make_chunk, chunks) if alone else work(make_chunk, chunks, n_workers, dask)
    total = -(-documents.total_bytes // _MEGABYTE)
    with closing(results), progress("tokenise", total, "MB") as meter:
        for chunk, result in results:
            if not isinstance(result, Made):
                raise UserError(lost_reason(f"chunk {chunk.index}", result.why))
            made[chunk.index] = result
            if (done := chunk.read // _MEGABYTE) > meter.done:
                meter.advance(done - meter.done)
        meter.advance(meter.total - meter.done)
    return [made[index] for index in sorted(made)]


def _ahead(function: Callable[[Chunk], Made], chunks: Iterator[Chunk]) -> Results:
    """Yields (chunk, result) as `workers.here` does, but reads a chunk while two before it are worked on.

    One of these is tokenised, by all cores, while the other is written.
    """
    waiting: deque[tuple[Chunk, Future[Made]]] = deque()
    with ThreadPoolExecutor(2) as pool:
        for chunk in chunks:
            waiting.append((chunk, pool.submit(function, chunk)))
            if len(waiting) > 2:
                before, made = waiting.popleft()
                yield before, made.result()
        for before, made in waiting:
            yield before, made.result()


def make_chunk(chunk: Chunk) -> Made:
    """Splits and tokenises some documents, in whatever process.

    Raises:
        OSError: nothing can be written.
    """
    name = chunk.name()
    file = chunk.folder / f"{name}.npz"
    if (counts := _counts(file)) is not None:
        return Made(name, counts, reused=True)
    tokenizer, unknown, special = _tokenizer(chunk.tokenizer, os.stat(chunk.tokenizer).st_mtime_ns)
    n_split = []
    with ThreadPoolExecutor(1) as beside:  # the library, which needs no lock of Python's, works while we split
        encoded, waiting = [], list[str]()
        for number, text in enumerate(chunk.texts, 1):
            sentences = chunk.split(text)
            n_split.append(len(sentences))
            waiting += sentences
            if len(waiting) >= _AT_ONCE or number == len(chunk.texts):
                encoded.append(beside.submit(_encoded, tokenizer, waiting))
                waiting = []
        found = [one.result() for one in encoded] or [_encoded(tokenizer, [])]
    ids, lengths = (np.concatenate(one) for one in zip(*found))
    document = np.repeat(np.arange(len(n_split)), n_split)
    # A sentence may hold nothing but what the tokenizer takes out, and so may a document.
    n_sentences = np.bincount(document[lengths > 0], minlength=len(n_split))
    n_tokens = np.bincount(document, lengths, minlength=len(n_split)).astype(np.int64)
    there = n_tokens > 0
    ends = n_tokens.cumsum()
    digests = [digest_of(ids[end - n : end]) for end, n in zip(ends, n_tokens)]
    arrays: dict[str, Any] = {
        "ids": ids,
        "sentences": lengths[lengths > 0],
        "documents": n_sentences[there],
        "places": np.array(chunk.places, np.int64).reshape(-1, 2)[there],
        "digests": np.array(digests, np.uint64)[there],
    }
    counts = {
        "tokens": len(ids),
        "unknown": int((ids == unknown).sum()),
        "special": int(np.isin(ids, special).sum()),
        "sentences": len(arrays["sentences"]),
        "documents": int(there.sum()),
        "next_pairs": int((n_sentences[there] - 1).sum()),
        "empty_documents": int((~there).sum()),
    }
    with replacing(file) as target:
        np.savez(target, counts=np.array(list(counts.values())), **arrays)
    return Made(name, counts)


def _encoded(tokenizer: tokenizers.Tokenizer, sentences: list[str]) -> tuple[np.ndarray, np.ndarray]:
    """Returns the ids of sentences, one after the other, and how many each has.

    For a long text the library needs less time than for as much in short ones, so sentences are joined by BERT's [SEP],
    before and after which it begins anew. Where one is written in the text, or the rules are not BERT's,
    each sentence goes alone.
    """
    sep_id = tokenizer.token_to_id(_SEP)
    like_bert = isinstance(tokenizer.normalizer, BertNormalizer) and isinstance(
        tokenizer.pre_tokenizer, BertPreTokenizer
    )
    written = any("[" in one and _SEP.lower() in one.lower() for one in sentences)
    if like_bert and sep_id is not None and not written:
        groups = [
            _SEP.join([*sentences[first : first + _JOINED], ""]) for first in range(0, len(sentences), _JOINED)
        ]  # fmt: skip
        ids = _flat([one.ids for one in tokenizer.encode_batch_fast(groups, add_special_tokens=False)])
        ends = np.flatnonzero(ids == sep_id)
        if len(ends) == len(sentences):
            return ids[ids != sep_id], np.diff(ends, prepend=-1) - 1
    found = [one.ids for one in tokenizer.encode_batch_fast(sentences, add_special_tokens=False)]
    return _flat(found), np.fromiter(map(len, found), np.int64, len(found))


def _flat(ids: list[list[int]]) -> np.ndarray:
    return np.fromiter(chain.from_iterable(ids), np.uint32, sum(map(len, ids)))


_COUNTED = ("tokens", "unknown", "special", "sentences", "documents", "next_pairs", "empty_documents")


def _counts(file: Path) -> dict[str, int] | None:
    """Returns what is in a finished chunk; none where there is no whole one."""
    try:
        with np.load(file, allow_pickle=False) as stored:
            return dict(zip(_COUNTED, stored["counts"].tolist(), strict=True))
    except (OSError, ValueError, KeyError, EOFError, BadZipFile):
        return None


@lru_cache(maxsize=2)
def _tokenizer(path: Path, _: int) -> tuple[tokenizers.Tokenizer, int, list[int]]:
    """Returns what the file holds, the id of [UNK] (-1: none), and those of the other special tokens."""
    tokenizer = tokenizers.Tokenizer.from_file(str(path))
    unknown = tokenizer.token_to_id(getattr(tokenizer.model, "unk_token", "") or "[UNK]")
    special = [i for i, token in tokenizer.get_added_tokens_decoder().items() if token.special and i != unknown]
    return tokenizer, -1 if unknown is None else unknown, special


def _put_together(folder: Path, done: Path, made: Sequence[Made], size: int) -> dict[str, int]:
    """Writes the corpus's arrays, a chunk at a time, and returns the totals."""
    totals = {name: sum(one.counts[name] for one in made) for name in _COUNTED}

    def write(name: str, dtype: str, shape: tuple[int, ...], part: Callable[[Mapping[str, Any]], np.ndarray]) -> None:
        with replacing(folder / f"{name}.npy") as file:
            head = {"descr": np.lib.format.dtype_to_descr(np.dtype(dtype)), "fortran_order": False, "shape": shape}
            np.lib.format.write_array_header_1_0(file, head)
            if name in ("sentences", "documents"):
                file.write(np.zeros(1, dtype).tobytes())
            for one in made:
                with np.load(done / f"{one.name}.npz", allow_pickle=False) as stored:
                    file.write(part(stored).astype(dtype, copy=False).tobytes())

    def offsets(name: str) -> Callable[[Mapping[str, Any]], Shaped[np.ndarray, " n"]]:
        before = 0

        def part(stored: Mapping[str, Any]) -> Shaped[np.ndarray, " n"]:
            nonlocal before
            ends = before + stored[name].cumsum()
            before = int(ends[-1]) if len(ends) else before
            return ends

        return part

    write("ids", "<u2" if size <= 2**16 else "<u4", (totals["tokens"],), lambda stored: stored["ids"])
    write("sentences", "<i8", (totals["sentences"] + 1,), offsets("sentences"))
    write("documents", "<i8", (totals["documents"] + 1,), offsets("documents"))
    write("places", "<i8", (totals["documents"], 2), lambda stored: stored["places"])
    write("digests", "<u8", (totals["documents"],), lambda stored: stored["digests"])
    return totals
