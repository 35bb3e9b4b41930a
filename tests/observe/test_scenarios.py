"""Every scenario of the stand-in through the real pynvml: right figures, or the right words."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from typing import Any

import pytest

from kvplanner.units import MIB
from tests.nvml_stub.build import SCENARIOS, environment, scenario_variant
from tests.patience import LONG_S

pytestmark = pytest.mark.slow

ASK = """
import json, sys, time
from kvplanner.observe.nvml import Unavailable
from kvplanner.observe.reader import GpuReader
from kvplanner.observe.snapshot import Snapshot, to_json
host = lambda: (127600748 * 1024, 60000000 * 1024)
try:
    reader = GpuReader(host=host)
except Unavailable as refused:
    shot = Snapshot(0, 0.0, 0.0, (), refused.state, refused.message, refused.remedy)
    rounds = [to_json(shot)]
else:
    rounds = []
    for _ in range(int(sys.argv[1])):
        gpus = reader.sample()
        rounds.append(to_json(Snapshot(0, 0.0, 0.0, gpus, driver=reader.driver, cuda=reader.cuda)))
    rounds[-1]["all_lost"] = reader.all_lost
    reader.close()
json.dump(rounds, sys.stdout)
"""


def ask(name: str, rounds: int = 1) -> list[dict[str, Any]]:
    env = os.environ | environment(SCENARIOS / f"{name}.ini", *scenario_variant(name))
    done = subprocess.run(
        [sys.executable, "-c", ASK, str(rounds)], env=env, capture_output=True, text=True, timeout=LONG_S, check=False
    )
    assert done.returncode == 0, done.stderr
    assert "Traceback" not in done.stderr
    assert done.stderr == ""
    answer: list[dict[str, Any]] = json.loads(done.stdout)
    return answer


def mib(value: int | dict[str, str]) -> float | str:
    return value["unavailable"] if isinstance(value, dict) else value / MIB


def memory(gpu: dict[str, Any]) -> tuple[float | str, ...]:
    return tuple(mib(gpu[k]) for k in ("total_bytes", "driver_reserved_bytes", "allocated_bytes", "free_bytes"))


def test_the_list_of_scenarios_is_complete() -> None:
    tested = {
        "8xh100", "a100-mig", "container-cgroup-lost", "container-hidden-pids", "container-mig", "desktop-4090",
        "gb10-unified", "gb10-zero-total", "gpu-lost", "h200-mig-shared", "no-devices", "no-driver", "no-permission",
        "old-driver-470", "r535-transition", "slow-and-odd", "version-mismatch", "wsl2",
    }  # fmt: skip
    assert {f.stem for f in SCENARIOS.glob("*.ini")} == tested


def test_desktop_shows_the_driver_part_apart() -> None:
    (shot,) = ask("desktop-4090")
    (gpu,) = shot["gpus"]
    assert memory(gpu) == (24564, 454, 1206, 22904)
    assert {p["pid"]: mib(p["memory_bytes"]) for p in gpu["processes"]} == {7777: 506, 2101: 412, 5120: 236, 2390: 9}
    assert mib(gpu["unlisted_bytes"]) == 1206 - (506 + 412 + 236 + 9)
    assert gpu["display"] is True
    assert gpu["pci"] == "0000:01:00.0"
    assert (shot["driver"], shot["cuda"]) == ("580.95.05", "13.0")
    assert (gpu["utilization_percent"], gpu["memory_busy_percent"]) == (4, 3)


def test_server_with_eight_gpus() -> None:
    (shot,) = ask("8xh100")
    assert [memory(g)[:3] for g in shot["gpus"]] == [(81559, 479, 72466)] * 4 + [(81559, 479, 0)] * 4
    assert [p["name"] for g in shot["gpus"] for p in g["processes"]] == [f"VLLM::Worker_TP{i}" for i in range(4)]
    assert {p["engine"] for g in shot["gpus"] for p in g["processes"]} == {None}


def test_mig_instances_with_holes_are_all_found() -> None:
    (shot,) = ask("a100-mig")
    parent, *slices = shot["gpus"]
    assert (parent["mig"], parent["kind"]) == (True, "gpu")
    assert "not supported" in parent["utilization_percent"]["unavailable"]
    assert [(s["gpu_instance"], memory(s)[0], memory(s)[2]) for s in slices] == [
        (1, 19968, 11990), (5, 9856, 2097), (9, 4864, 7), (10, 4864, 7),
    ]  # fmt: skip
    assert {s["parent_uuid"] for s in slices} == {parent["uuid"]}
    assert [p["pid"] for p in slices[1]["processes"]] == [3302]


def test_two_compute_instances_name_their_common_gpu_instance() -> None:
    (shot,) = ask("h200-mig-shared")
    _, first, second, other = shot["gpus"]
    assert (first["gpu_instance"], first["compute_instance"]) == (2, 0)
    assert (second["gpu_instance"], second["compute_instance"]) == (2, 1)
    assert memory(first) == memory(second) == (71424, 0, 16912, 71424 - 16912)
    assert other["gpu_instance"] == 3


def test_container_that_owns_one_instance() -> None:
    (shot,) = ask("container-mig")
    parent, instance = shot["gpus"]
    assert set(memory(parent)) == {"no permission"}
    assert parent["processes"] is None
    assert "no permission" in parent["process_note"]
    assert memory(instance)[:3] == (20096, 0, 11091)


@pytest.mark.parametrize("name", ["gb10-unified", "gb10-zero-total"])
def test_memory_shared_with_the_host(name: str) -> None:
    (shot,) = ask(name)
    (gpu,) = shot["gpus"]
    assert gpu["shared_with_system"] is True
    assert gpu["total_bytes"] == 127600748 * 1024
    assert gpu["free_bytes"] == 60000000 * 1024
    assert "shared" in gpu["driver_reserved_bytes"]["unavailable"]
    assert {p["pid"]: mib(p["memory_bytes"]) for p in gpu["processes"]} == {9100: 61440, 2588: 43}


def test_windows_display_driver_tells_nothing_per_process() -> None:
    (shot,) = ask("wsl2")
    (gpu,) = shot["gpus"]
    assert memory(gpu) == (16376, 210, 14360, 16376 - 210 - 14360)
    assert [(p["pid"], p["name"]) for p in gpu["processes"]] == [(31, None), (79, None)]
    assert {p["memory_bytes"]["unavailable"] for p in gpu["processes"]} == {"n/a (Windows display driver)"}
    assert mib(gpu["unlisted_bytes"]) == 14360


def test_container_without_the_hosts_processes_says_so() -> None:
    (shot,) = ask("container-hidden-pids")
    (gpu,) = shot["gpus"]
    assert memory(gpu)[2] == 22500
    assert gpu["processes"] == []
    assert "not visible" in gpu["process_note"]


def test_one_lost_gpu_leaves_the_other_alone() -> None:
    rounds = ask("gpu-lost", rounds=4)
    assert [g["status"] for g in rounds[0]["gpus"]] == ["ok", "ok"]
    assert [g["status"] for g in rounds[-1]["gpus"]] == ["ok", "lost"]
    lost = rounds[-1]["gpus"][1]
    assert "stopped answering" in lost["message"]
    assert memory(lost)[0] == 24576
    assert rounds[-1]["all_lost"] is False


def test_container_that_lost_its_devices() -> None:
    rounds = ask("container-cgroup-lost", rounds=12)
    assert rounds[0]["gpus"][0]["status"] == "ok"
    assert rounds[-1]["gpus"][0]["status"] == "lost"
    assert "unknown error" in rounds[-1]["gpus"][0]["message"]
    assert rounds[-1]["all_lost"] is True


def test_forbidden_gpu_beside_one_that_works() -> None:
    (shot,) = ask("no-permission")
    forbidden, usable = shot["gpus"]
    assert (forbidden["status"], forbidden["message"]) == ("no_permission", "No permission for this GPU.")
    assert memory(usable)[:3] == (46068, 580, 4)
    assert usable["index"] == 1


def test_driver_without_the_second_versions() -> None:
    (shot,) = ask("old-driver-470")
    (gpu,) = shot["gpus"]
    assert memory(gpu) == (11019, "this driver is too old to tell", 3151, 11019 - 3151)
    assert [(p["pid"], mib(p["memory_bytes"])) for p in gpu["processes"]] == [(4242, 3148)]


def test_early_r535_process_records() -> None:
    (shot,) = ask("r535-transition")
    found = {p["pid"]: mib(p["memory_bytes"]) for p in shot["gpus"][0]["processes"]}
    assert found == {1184: 4284, 16040: 4284, 19984: 4320}


def test_odd_answers_do_not_spread() -> None:
    (shot,) = ask("slow-and-odd")
    (gpu,) = shot["gpus"]
    assert memory(gpu)[:3] == (8188, 380, 15)
    assert "unknown error" in gpu["temperature_c"]["unavailable"]
    assert "not supported" in gpu["utilization_percent"]["unavailable"]
    assert gpu["processes"][0]["name"].startswith("/opt/caf")


@pytest.mark.parametrize(
    ("name", "state", "says", "remedy"),
    [
        ("no-driver", "not_loaded", "installed but not running", "kernel module"),
        ("version-mismatch", "version_mismatch", "updated", "Restart the computer"),
    ],
)
def test_a_driver_that_does_not_start(name: str, state: str, says: str, remedy: str) -> None:
    (shot,) = ask(name)
    assert shot["state"] == state
    assert says in shot["message"]
    assert remedy in shot["remedy"]
    assert "reinstall" not in shot["remedy"].lower()


def test_no_devices() -> None:
    (shot,) = ask("no-devices")
    assert shot["gpus"] == []
