"""What a window begins with on machines of all sizes."""

from __future__ import annotations

import pytest

from kvplanner.app.document import Document
from kvplanner.app.start import adopt, first_state
from kvplanner.catalog import gpus
from kvplanner.engine.registry import engine


@pytest.mark.parametrize("name", ["RTX 4090", "RTX 3090", "RTX 4060 Ti 8GB", "RTX 3060 12GB", "H100", "L4"])
def test_a_fresh_machine_opens_on_a_plan_that_fits_it(qapp: object, name: str) -> None:
    document = Document(state=first_state())
    told = adopt(document, gpus.machine(name)._replace(source="this machine"))
    request = document.state.request()
    assert request is not None
    assert request.machine.devices[0].gpu.name.endswith(gpus.machine(name).devices[0].gpu.name)
    assert engine("vllm").plan(request).fits
    assert bool(told) == (name != "H100")
    assert document.undo_count == 0
    document.stop()


def test_what_was_chosen_is_not_begun_anew(qapp: object) -> None:
    document = Document(state=first_state())
    document.set_option("max_num_seqs", 5)
    adopt(document, gpus.machine("RTX 4090")._replace(source="this machine"))
    assert dict(document.state.ask.options) == {"max_num_seqs": 5}
    document.stop()
