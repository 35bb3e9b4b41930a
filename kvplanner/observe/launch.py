"""Starts the helper process: multiprocessing's spawn method, without its resource tracker.

On POSIX multiprocessing keeps a second process (the resource tracker) beside every spawned one. The helper shares
nothing that needs tracking, and an application that promises one helper should not show two. Nor is the parent's
main module imported again in the helper.
"""

from __future__ import annotations

import io
import os
import sys
from multiprocessing import context, get_context, process, spawn, util
from multiprocessing.connection import Connection
from multiprocessing.process import BaseProcess
from typing import Any

from kvplanner.observe.helper import HelperSettings, run

if sys.platform == "win32":
    _Process: type[BaseProcess] = context.SpawnProcess
else:
    from multiprocessing import popen_spawn_posix, reduction

    def _close(*descriptors: int) -> None:
        for descriptor in descriptors:
            os.close(descriptor)

    class _QuietPopen(popen_spawn_posix.Popen):
        """The spawn launcher less the resource tracker and the parent's main module."""

        def _launch(self, process_obj: BaseProcess) -> None:
            settings = spawn.get_preparation_data(process_obj.name)
            for key in ("init_main_from_name", "init_main_from_path"):
                settings.pop(key, None)
            payload = io.BytesIO()
            context.set_spawning_popen(self)
            try:
                reduction.dump(settings, payload)
                reduction.dump(process_obj, payload)
            finally:
                context.set_spawning_popen(None)
            parent_reads, child_writes = os.pipe()
            child_reads, parent_writes = os.pipe()
            no_tracker = os.open(os.devnull, os.O_RDWR)
            try:
                command = spawn.get_command_line(tracker_fd=no_tracker, pipe_handle=child_reads)
                kept: list[int] = self._fds  # type: ignore[attr-defined]  # what duplicate_for_child collected
                self.sentinel = parent_reads
                passed = [*kept, child_reads, child_writes, no_tracker]
                self.pid = util.spawnv_passfds(os.fsencode(spawn.get_executable()), command, passed)
                with open(parent_writes, "wb", closefd=False) as stream:
                    stream.write(payload.getbuffer())
            finally:
                self.finalizer = util.Finalize(self, _close, (parent_reads, parent_writes))
                for descriptor in (child_reads, child_writes, no_tracker):
                    os.close(descriptor)

    class _Process(context.SpawnProcess):
        @staticmethod
        def _Popen(process_obj: BaseProcess) -> Any:
            return _QuietPopen(process_obj)


def start_helper(settings: HelperSettings) -> tuple[BaseProcess, Connection]:
    """Starts one helper; returns it and this side of its connection. It ends with this process in any case."""
    here, there = get_context("spawn").Pipe(duplex=True)
    helper = _Process(target=run, args=(there, settings), name="kvplanner-gpu-helper", daemon=True)
    helper.start()
    there.close()
    return helper, here


def forget(helper: BaseProcess) -> None:
    """Gives up on a helper that a driver call keeps alive although it was killed: nothing waits for it at exit."""
    children: set[BaseProcess] = process._children  # type: ignore[attr-defined]  # multiprocessing keeps it there
    children.discard(helper)
