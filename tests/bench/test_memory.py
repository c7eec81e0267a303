import sys

import pytest

from tests.bench import TINY
from vitkit.bench import memory
from vitkit.bench.inference import InferenceJob, prepare, with_class_names
from vitkit.bench.memory import peak_memory, process_memory
from vitkit.errors import WorkError
from vitkit.model import create_model


def test_peak_memory_is_that_of_a_separate_process() -> None:
    """A batch that is 8,000 times as large must show, and not raise the peak of the next process."""
    model, peaks = with_class_names(create_model(TINY)), []
    for batch_size in (1, 8000, 1):
        job = InferenceJob(model, batch_size)
        peaks.append(peak_memory(prepare, ["vitkit eager"], job)["vitkit eager"])
    assert peaks[1] > max(peaks[0], peaks[2]) + 50


@pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")
def test_the_memory_of_this_process_is_read() -> None:
    assert 2**20 < process_memory("VmRSS") <= process_memory("VmHWM")


def test_without_proc_the_error_names_the_requirement(monkeypatch: pytest.MonkeyPatch, tmp_path) -> None:
    monkeypatch.setattr(memory, "STATUS", tmp_path / "status")
    with pytest.raises(WorkError, match="needs Linux"):
        process_memory("VmRSS")
    monkeypatch.setitem(sys.modules, "resource", None)
    with pytest.raises(WorkError, match="use --no-memory"):
        memory._peak(lambda name, job: lambda: None, "x", None)
