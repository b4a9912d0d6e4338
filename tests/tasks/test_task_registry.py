"""Tasks by name, by import and by entry point."""

from __future__ import annotations

import subprocess
import sys

import pytest

from dreamcheck.digest import digest_file
from dreamcheck.errors import UsageError
from dreamcheck.tasks import get_task, registry, resolve_task, task_names
from dreamcheck.tasks.tworoom import TwoRoom


def test_the_built_in_task_is_found_by_name():
    task, source = resolve_task("tworoom")
    assert isinstance(task, TwoRoom) and source.source_digest is None
    assert "tworoom" in task_names()


def test_a_user_s_factory_is_imported_and_its_source_recorded(tmp_path, monkeypatch):
    module = tmp_path / "my_own_rooms.py"
    module.write_text("from dreamcheck.tasks.tworoom import TwoRoom\nmake = lambda: TwoRoom()\n")
    monkeypatch.syspath_prepend(tmp_path)
    task, source = resolve_task("my_own_rooms:make")
    assert task.name == "tworoom"
    assert source.reference == "my_own_rooms:make"
    assert source.source_digest == digest_file(module)


def test_installed_tasks_are_offered_by_name(monkeypatch):
    from importlib.metadata import EntryPoint, EntryPoints

    point = EntryPoint("other-room", "dreamcheck.tasks.tworoom:TwoRoom", registry.ENTRY_POINTS)
    monkeypatch.setattr(registry, "_entry_points", lambda: EntryPoints([point]))
    assert task_names() == ("other-room", "pusht", "tworoom")
    assert isinstance(get_task("other-room"), TwoRoom)


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("threerooms", "no task is called 'threerooms'. Known tasks: .*tworoom"),
        ("no.such.module:make", "cannot be imported: No module named 'no'"),
        ("json:nothing", "cannot be imported: .* has no attribute 'nothing'"),
        ("math:pi", "is a float, not a factory"),
        ("json:JSONEncoder", "is not a task: it has no name, version"),
        ("json:dumps", "cannot be called"),
    ],
)
def test_what_is_not_a_task_is_refused_with_the_way_out(name, message):
    with pytest.raises(UsageError, match=message):
        get_task(name)


def test_listing_tasks_imports_no_torch():
    code = "import sys; from dreamcheck.tasks import task_names; task_names(); "
    code += "assert 'torch' not in sys.modules"
    subprocess.run([sys.executable, "-c", code], check=True)
