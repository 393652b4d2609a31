"""Small recordings in the formats of amplifiers' makers, written byte by byte by the makers' layouts.

Each writer takes a folder, microvolts [C T] on a grid that the format stores exactly, labels, the rate and events
(sample, label), and returns the file to read.
"""

import ctypes
import struct
from collections.abc import Sequence
from pathlib import Path

import numpy as np

Events = Sequence[tuple[int, str]]
STEP_UV = 0.1
"""Integer formats are written with this many microvolts in a digital step, where they let the writer choose."""


def integers(data_uv: np.ndarray, step_uv: float = STEP_UV) -> np.ndarray:
    return np.rint(data_uv / step_uv).astype(np.int64)


def write_persyst(
    folder: Path,
    data_uv: np.ndarray,
    labels: Sequence[str],
    sfreq_hz: float,
    events: Events = (),
    *,
    wide: bool = False,
    patient: Sequence[str] = ("First=X", "Sex=", "Hand=", "BirthDate=01/01/70", "TestDate=01/02/2010",
                              "TestTime=10:20:30"),
    sample_times: Sequence[tuple[int, float]] = (),
    data_file: str = "a.dat",
) -> Path:  # fmt: skip
    """`sample_times`: (sample, seconds of the day) of each piece's first sample."""
    lines = [
        "[FileInfo]", f"File={data_file}", "FileType=Interleaved", f"SamplingRate={sfreq_hz:g}", "HeaderLength=0",
        f"Calibration={STEP_UV}", f"WaveformCount={len(labels)}", f"DataType={7 if wide else 0}", "",
        "[Patient]", *patient, "", "[SampleTimes]", *(f"{sample}={time_s:.6f}" for sample, time_s in sample_times), "",
        "[ChannelMap]", *(f"{label}={i + 1}" for i, label in enumerate(labels)), "",
        "[Comments]", *(f"{sample / sfreq_hz:.6f},0.000000,0,100,{label}" for sample, label in events), "",
    ]  # fmt: skip
    (folder / "a.lay").write_text("\n".join(lines))
    (folder / "a.dat").write_bytes(integers(data_uv).T.astype("<i4" if wide else "<i2").tobytes())
    return folder / "a.lay"


NEDF_STEP_UV = 2.4 / (6.0 * 8388607) * 1e6


def write_nedf(folder: Path, data_uv: np.ndarray, labels: Sequence[str], sfreq_hz: float, events: Events = ()) -> Path:
    """Blocks of five samples behind one of the accelerometer; the trigger's number is the event's label."""
    montage = "".join(f"<C{i + 1}>{label}</C{i + 1}>" for i, label in enumerate(labels))
    n = data_uv.shape[1]
    header = (
        "<nedf><NEDFversion>1.4</NEDFversion><NumberOfChannelsOfAccelerometer>3</NumberOfChannelsOfAccelerometer>"
        "<AdditionalChannelStatus>OFF</AdditionalChannelStatus><StepDetails><DeviceClass>ENOBIO20</DeviceClass>"
        "<StartDate_firstEEGTimestamp>1262341230000</StartDate_firstEEGTimestamp></StepDetails><EEGSettings>"
        f"<TotalNumberOfChannels>{len(labels)}</TotalNumberOfChannels><EEGSamplingRate>{sfreq_hz:g}</EEGSamplingRate>"
        f"<NumberOfRecordsOfEEG>{n}</NumberOfRecordsOfEEG><EEGMontage>{montage}</EEGMontage></EEGSettings></nedf>"
    )
    triggers = dict(events)
    body = bytearray()
    for at, sample in enumerate(integers(data_uv, NEDF_STEP_UV).T):
        if at % 5 == 0:
            body += struct.pack(">3H", 1, 2, 3)
        body += b"".join(int(value).to_bytes(3, "big", signed=True) for value in sample)
        body += struct.pack(">i", int(triggers.get(at, 0)))
    (folder / "a.nedf").write_bytes(header.encode().ljust(10240, b"\0") + bytes(body))
    return folder / "a.nedf"


def write_nicolet(folder: Path, data_uv: np.ndarray, labels: Sequence[str], sfreq_hz: float, _: Events = ()) -> Path:
    """The format has no events."""
    (folder / "a.head").write_text(
        f"start_ts=2010-01-01 10:20:30.000\nnum_samples={data_uv.shape[1]}\nsample_freq={sfreq_hz:g}\n"
        f"conversion_factor={STEP_UV}\nnum_channels={len(labels)}\nelec_names=[{','.join(labels)}]\n"
        "pat_id=1\nadm_id=1\nrec_id=1\nduration_in_sec=8\nsample_bytes=2\n"
    )
    (folder / "a.data").write_bytes(integers(data_uv).T.astype("<i2").tobytes())
    return folder / "a.data"


def write_egi_raw(
    folder: Path, data_uv: np.ndarray, labels: Sequence[str], sfreq_hz: float, events: Events = ()
) -> Path:
    """Simple binary, floats: the file has no labels, only as many channels; each event code is a channel of its own."""
    codes = sorted({label for _, label in events})
    header = struct.pack(">i6hi", 4, 2010, 2, 1, 10, 20, 30, 0)
    header += struct.pack(">5hih", int(sfreq_hz), len(labels), 0, 0, 0, data_uv.shape[1], len(codes))
    marks = np.zeros((len(codes), data_uv.shape[1]))
    for sample, label in events:
        marks[codes.index(label), sample] = 1
    body = np.concatenate([data_uv, marks]).T.astype(">f4").tobytes()
    (folder / "a.raw").write_bytes(header + "".join(codes).encode() + body)
    return folder / "a.raw"


def write_mff(
    folder: Path,
    data_uv: np.ndarray,
    labels: Sequence[str],
    sfreq_hz: float,
    events: Events = (),
    *,
    pieces: Sequence[tuple[int, int]] | None = None,
) -> Path:
    """A folder; `pieces` (first, last sample of the recorder's count) are stored behind each other, with gaps between.

    Events are in the recorder's count, at 10:20:30 + sample / rate.
    """
    path = folder / "a.mff"
    path.mkdir()
    xmlns = "http://www.egi.com"
    n = len(labels)
    pieces = pieces or [(0, data_uv.shape[1])]
    step_ns = round(1e9 / sfreq_hz)

    def write(name: str, root: str, body: str, schema: str) -> None:
        text = f'<?xml version="1.0" encoding="UTF-8"?>\n<{root} xmlns="{xmlns}/{schema}">{body}</{root}>'
        (path / name).write_text(text, encoding="utf-8")

    write("info.xml", "fileInfo", "<mffVersion>3</mffVersion>"
          "<recordTime>2010-02-01T10:20:30.000000000+00:00</recordTime>", "info_mff")  # fmt: skip
    write("info1.xml", "dataInfo", "<generalInformation><fileDataType><EEG><sensorLayoutName>x</sensorLayoutName>"
          "<montageName>x</montageName></EEG></fileDataType></generalInformation>", "info_n_mff")  # fmt: skip
    write("epochs.xml", "epochs", "".join(
        f"<epoch><beginTime>{first * step_ns}</beginTime><endTime>{last * step_ns}</endTime>"
        f"<firstBlock>{i + 1}</firstBlock><lastBlock>{i + 1}</lastBlock></epoch>"
        for i, (first, last) in enumerate(pieces)), "epochs_mff")  # fmt: skip
    sensors = [f"<sensor><name>{label}</name><number>{i + 1}</number><type>0</type><x>0</x><y>0</y><z>0</z></sensor>"
               for i, label in enumerate(labels)]  # fmt: skip
    write("sensorLayout.xml", "sensorLayout", f"<name>x</name><sensors>{''.join(sensors)}</sensors>",
          "sensorLayout_mff")  # fmt: skip
    write("Events_x.xml", "eventTrack", "<name>x</name><trackType>EVNT</trackType>" + "".join(
        f"<event><beginTime>2010-02-01T10:20:{30 + sample / sfreq_hz:012.9f}+00:00</beginTime><duration>1000</duration>"
        f"<code>{label}</code></event>" for sample, label in events), "event_mff")  # fmt: skip
    blocks, at = [], 0
    for first, last in pieces:
        block = data_uv[:, at : at + last - first].astype("<f4")
        at += last - first
        sizes = struct.pack(f"<{n}i", *range(0, 4 * block.size, 4 * block.shape[1]))
        rates = struct.pack(f"<{n}i", *[(int(sfreq_hz) << 8) | 32] * n)
        head = struct.pack("<3i", 16 + 8 * n + 4, 4 * block.size, n) + sizes + rates + struct.pack("<i", 0)
        blocks.append(struct.pack("<i", 1) + head + block.tobytes())
    (path / "signal1.bin").write_bytes(b"".join(blocks))
    return path


def write_curry(
    folder: Path,
    data_uv: np.ndarray,
    labels: Sequence[str],
    sfreq_hz: float,
    events: Events = (),
    *,
    version: int = 8,
    unit: str = "uV",
) -> Path:
    """Curry 7 (`.dat`, `.dap`, `.rs3`, `.cef`) or 8 (`.cdt`, `.cdt.dpa`, `.cdt.cef`); events are numbers."""
    n = len(labels)
    main = folder / ("a.dat" if version == 7 else "a.cdt")
    parameters = {
        "FileVersion": f"{version}01", "NumSamples": data_uv.shape[1], "NumChannels": n, "NumTrials": 1,
        "SampleFreqHz": f"{sfreq_hz:g}", "TriggerOffsetUsec": 0, "DataFormat": "FLOAT", "DataSampOrder": "SAMP",
        "DataByteOrder": "INTEL", "SampleTimeUsec": f"{1e6 / sfreq_hz:g}", "StartYear": 2010, "StartMonth": 2,
        "StartDay": 1, "StartHour": 10, "StartMin": 20, "StartSec": 30, "StartMillisec": 0,
    }  # fmt: skip
    text = "\n".join(
        ["DATA_PARAMETERS START_LIST", *(f"   {key} = {value}" for key, value in parameters.items()),
         "DATA_PARAMETERS END_LIST", "AmplifierInfo = ", "", "DEVICE_PARAMETERS START", f"   DataUnit = {unit}",
         f"   NumChanThisGroup = {n}", "DEVICE_PARAMETERS END", "",
         _curry_list("CHAN_IN_FILE", [str(i + 1) for i in range(n)])]
    )  # fmt: skip
    places = _curry_list("LABELS", labels) + _curry_list("SENSORS", [f"{10 * i}\t20\t30" for i in range(n)])
    if version == 7:
        (folder / "a.dap").write_text(text)
        (folder / "a.rs3").write_text(places)
    else:
        (folder / "a.cdt.dpa").write_text(text + places)
    if events:
        rows = [f"{sample}\t0\t{label}\t0\t{sample}\t{sample}\t0\t0\t0\t0\t0" for sample, label in events]
        marks = _curry_list("NUMBER_LIST", rows) + _curry_list("REMARK_LIST", [""] * len(rows))
        (folder / ("a.cef" if version == 7 else "a.cdt.cef")).write_text(marks)
    main.write_bytes(data_uv.T.astype("<f4").tobytes())
    return main


def _curry_list(name: str, rows: Sequence[str]) -> str:
    """As Curry writes a list: its size, then its rows; the name stands four times, each at a line's beginning."""
    return (
        f"\n{name} START\n   ListDescription      = x\n   ListNrRows           = {len(rows)}\n{name} END\n\n"
        f"{name} START_LIST\t# Do not edit!\n" + "\n".join(rows) + f"\n{name} END_LIST\n"
    )


def write_ant(
    folder: Path, data_uv: np.ndarray, labels: Sequence[str], sfreq_hz: float, events: Events = (), *,
    unit: str = "uV", info: bool = True,
) -> Path:  # fmt: skip
    """eego: the samples are compressed, so the maker's own library writes them, in steps of 1/128 of the unit."""
    from antio import libeep

    library = ctypes.CDLL(str(Path(libeep.__file__).with_name("libEep.so")))
    library.libeep_init()
    channels = library.libeep_create_channel_info()
    for label in labels:
        library.libeep_add_channel(channels, label.encode(), b"REF", unit.encode())
    file = library.libeep_write_cnt(str(folder / "a.cnt").encode(), int(sfreq_hz), channels, 1)
    if info:
        about = library.libeep_create_recinfo()
        library.libeep_set_start_time(about, ctypes.c_long(1265019630))  # 1 February 2010 10:20:30
        library.libeep_add_recording_info(file, about)
    for sample, label in events:
        library.libeep_add_trigger(file, ctypes.c_uint64(sample), label.encode())
    samples = np.ascontiguousarray(data_uv.T, np.float32)
    library.libeep_add_samples(file, samples.ctypes.data_as(ctypes.c_void_p), len(samples))
    library.libeep_close(file)
    return folder / "a.cnt"


NIHON_STEP_UV = (3199.902 + 3200) / 65535


def write_nihon(
    folder: Path, blocks_uv: Sequence[np.ndarray] | np.ndarray, labels: Sequence[str], sfreq_hz: float,
    events: Events = (), *, begins: Sequence[str] = ("100201102030",),
) -> Path:  # fmt: skip
    """Nihon Kohden: `.EEG` (one data block for each of `blocks_uv`), `.PNT`, `.21E`, `.LOG` (whole seconds).

    `begins`: yymmddHHMMSS of each block, written as binary-coded decimals.
    """
    blocks = [blocks_uv] if isinstance(blocks_uv, np.ndarray) else list(blocks_uv)
    version = b"EEG-1100C V01.00"
    n = len(labels)
    file = bytearray(0x1800)
    file[0:16] = file[0x81:0x91] = version
    file[0x17FE] = 1
    file[0x91] = 1  # one control block
    control = 0x400
    file[0x92:0x96] = struct.pack("<I", control)
    file[control + 17] = len(blocks)
    for number, block in enumerate(blocks):
        file[control + 18 + 20 * number : control + 22 + 20 * number] = struct.pack("<I", len(file))
        head = bytearray(0x27 + 10 * n)
        head[0x1A:0x20] = struct.pack("<HI", int(sfreq_hz), round(block.shape[1] * 10 / sfreq_hz))
        head[0x14:0x1A] = bytes.fromhex(begins[number])
        head[0x26] = n
        for i in range(n):
            head[0x27 + 10 * i] = i
        digital = np.rint((block + 3200) / NIHON_STEP_UV)
        file += head + np.vstack([digital, np.zeros(block.shape[1])]).T.astype("<u2").tobytes()
    (folder / "A.EEG").write_bytes(bytes(file))
    lines = ["[ELECTRODE]", *(f"{i:04d}={label}" for i, label in enumerate(labels)), "[REFERENCE]"]
    (folder / "A.21E").write_text("\n".join(lines) + "\n")
    (folder / "A.PNT").write_bytes(version.ljust(0x40, b"\0") + b"20100201102030".ljust(64, b"\0"))
    log = bytearray(0x400)
    log[0:16] = version
    log[0x91] = 1
    log[0x92:0x96] = struct.pack("<I", 0x300)
    log[0x301:0x311] = version
    log[0x312] = len(events)
    del log[0x314:]
    for sample, label in events:
        at_s = int(sample / sfreq_hz)
        clock = f"{at_s // 3600:02d}{at_s // 60 % 60:02d}{at_s % 60:02d}"
        log += label.encode().ljust(20, b"\0") + clock.encode().ljust(25, b"\0")
    (folder / "A.LOG").write_bytes(bytes(log))
    return folder / "A.EEG"


def write_neuroscan(
    folder: Path, data_uv: np.ndarray, labels: Sequence[str], sfreq_hz: float, events: Events = (), *, wide: bool = True
) -> Path:
    """`.cnt` of 16 or 32 bits, with a table of events of type 1; their labels are numbers.

    An event has the place in the file where its sample ends.
    """
    n, (width, form) = len(labels), (4, "<i4") if wide else (2, "<i2")
    samples = integers(data_uv).T.astype(form).tobytes()
    begins = 900 + 75 * n
    setup = bytearray(begins)
    setup[0:12] = b"Version 3.0\0"
    setup[225:247] = b"02/01/10\0\0" + b"10:20:30\0\0\0\0"
    setup[370:372] = struct.pack("<H", n)
    setup[376:378] = struct.pack("<H", int(sfreq_hz))
    setup[864:868] = struct.pack("<i", data_uv.shape[1])
    setup[886:890] = struct.pack("<i", begins + len(samples))
    for i, label in enumerate(labels):
        at = 900 + 75 * i
        setup[at : at + len(label)] = label.encode()
        setup[at + 19 : at + 27] = struct.pack("<2f", 10 * i, 5)
        setup[at + 59 : at + 63] = struct.pack("<f", 204.8 * STEP_UV)
        setup[at + 71 : at + 75] = struct.pack("<f", 1.0)
    rows = b"".join(
        struct.pack("<HBBi", int(label), 0, 0, begins + (sample + 1) * n * width) for sample, label in events
    )
    (folder / "a.cnt").write_bytes(bytes(setup) + samples + struct.pack("<Bii", 1, len(rows), 0) + rows)
    return folder / "a.cnt"


def write_gdf(
    folder: Path,
    data_uv: np.ndarray,
    labels: Sequence[str],
    sfreq_hz: float,
    events: Events = (),
    *,
    unit_code: int = 4275,
    lasting: Sequence[int] = (),
) -> Path:
    """GDF 2.10: 16 bits, records of one second, a table of events of mode 1, or 3 where they last some samples."""
    n, per_record = len(labels), int(sfreq_hz)
    n_records = data_uv.shape[1] // per_record
    start = int((734170 + (10 * 3600 + 20 * 60 + 30) / 86400) * 2**32)  # 1 February 2010 10:20:30, days since year 0
    head = bytearray(256)
    head[0:8] = b"GDF 2.10"
    head[8:74] = b"X".ljust(66)
    head[88:152] = b"".ljust(64)
    head[168:176] = struct.pack("<Q", start)
    head[184:186] = struct.pack("<H", 1 + n)
    head[236:244] = struct.pack("<q", n_records)
    head[244:252] = struct.pack("<II", 1, 1)
    head[252:254] = struct.pack("<H", n)
    top = 32767
    fields = [
        *(label.encode().ljust(16, b"\0") for label in labels), b"\0" * 80 * n, b"\0" * 6 * n,
        struct.pack("<H", unit_code) * n, struct.pack("<d", -top * STEP_UV) * n, struct.pack("<d", top * STEP_UV) * n,
        struct.pack("<d", -top) * n, struct.pack("<d", top) * n, b"\0" * 68 * n, struct.pack("<3f", 0, 0, 0) * n,
        struct.pack("<I", per_record) * n, struct.pack("<I", 3) * n, b"\0" * 12 * n, b"\0" * 20 * n,
    ]  # fmt: skip
    records = integers(data_uv).reshape(n, n_records, per_record).transpose(1, 0, 2).astype("<i2").tobytes()
    table = struct.pack("<B", 3 if lasting else 1) + len(events).to_bytes(3, "little") + struct.pack("<f", sfreq_hz)
    table += struct.pack(f"<{len(events)}I", *(sample + 1 for sample, _ in events))
    table += struct.pack(f"<{len(events)}H", *(int(label) for _, label in events))
    if lasting:
        table += struct.pack(f"<{len(events)}H", *[0] * len(events)) + struct.pack(f"<{len(events)}I", *lasting)
    (folder / "a.gdf").write_bytes(bytes(head) + b"".join(fields) + records + table)
    return folder / "a.gdf"
