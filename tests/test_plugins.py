"""Third-party plugins: found, preferred to built-ins, skipped and named when broken."""

from __future__ import annotations

import itertools
import textwrap
from importlib import metadata

import pytest

from srhpm_plugin.backend import Backend
from srhpm_plugin.blame import PluginError
from srhpm_plugin.errors import UserError
from srhpm_plugin.machine.probe import probe
from srhpm_plugin.plan import HostRequest
from srhpm_plugin.plugins import BUILTINS, GROUP, load

_numbers = itertools.count()

GOOD = """
    from srhpm_plugin.hookspecs import hookimpl

    class Mine:
        name = "mine"
        def server(self): return None
        def missing(self): return "get it"
        def command(self, plan): raise NotImplementedError
        def ready_url(self, base_url): return base_url
        def exactness(self, model_types, plan): return ()

    @hookimpl
    def srhpm_backends():
        return [Mine()]
"""
BROKEN = {
    "import": ("import no_such_module_anywhere", "ModuleNotFoundError"),
    "exit": ("raise SystemExit(3)", "SystemExit: 3"),
    "syntax": ("def broken(:", "SyntaxError"),
    "name": (
        "from srhpm_plugin.hookspecs import hookimpl\n@hookimpl\ndef srhpm_bakends(): return []",
        "unknown hook 'srhpm_bakends'",
    ),
    "argument": (
        "from srhpm_plugin.hookspecs import hookimpl\n"
        "@hookimpl\ndef srhpm_plan_threads(cores): return 1, ''",
        "cores",
    ),
}


@pytest.fixture
def entry(tmp_path, monkeypatch):
    """Writes a module and gives an entry point that names it."""
    monkeypatch.syspath_prepend(tmp_path)

    def make(source: str, name: str = "stranger") -> metadata.EntryPoint:
        module = f"srhpm_test_stranger_{next(_numbers)}"
        (tmp_path / f"{module}.py").write_text(textwrap.dedent(source))
        return metadata.EntryPoint(name, module, GROUP)

    return make


def load_all(*entries: metadata.EntryPoint):
    return load(metadata.EntryPoints(entries))


def test_builtins_alone():
    plugins = load_all()
    assert plugins.broken == ()
    assert sorted(plugins.backends()) == ["srhpm", "stock"]


def test_builtins_named_as_entry_points_load_once():
    plugins = load_all(*(metadata.EntryPoint(str(i), n, GROUP) for i, n in enumerate(BUILTINS)))
    assert plugins.broken == ()
    assert len(plugins.manager.get_plugins()) == len(BUILTINS)


def test_installed_package_names_its_builtins():
    declared = {entry.value for entry in metadata.entry_points(group=GROUP)}
    assert {"srhpm_plugin.backends.srhpm", "srhpm_plugin.backends.stock"} <= declared


def test_third_party_backend(entry):
    plugins = load_all(entry(GOOD))
    assert sorted(plugins.backends()) == ["mine", "srhpm", "stock"]
    assert plugins.backend("mine").missing() == "get it"


def test_third_party_backend_replaces_a_builtin(entry):
    plugins = load_all(entry(GOOD.replace('"mine"', '"stock"')))
    assert plugins.backend("stock").missing() == "get it"


def test_unknown_backend_names_the_known():
    with pytest.raises(UserError, match=r"no backend 'x'.*choose one of: srhpm, stock"):
        load_all().backend("x")


@pytest.mark.parametrize("kind", BROKEN)
def test_broken_plugin_is_skipped_and_named(entry, kind):
    source, reason = BROKEN[kind]
    plugins = load_all(entry(source, "bad"), entry(GOOD, "good"))
    (broken,) = plugins.broken
    assert broken.name == "bad"
    assert reason in broken.reason
    assert "mine" in plugins.backends()
    plugins.manager.check_pending()


def test_missing_attribute_of_a_good_module(entry):
    good = entry(GOOD)
    wrong = metadata.EntryPoint("bad", f"{good.value}:nothing", GROUP)
    (broken,) = load_all(wrong).broken
    assert "AttributeError" in broken.reason


def test_two_plugins_of_one_name_are_both_loaded(entry):
    other = GOOD.replace('"mine"', '"other"')
    plugins = load_all(entry(GOOD, "twin"), entry(other, "twin"))
    assert plugins.broken == ()
    assert {"mine", "other"} <= plugins.backends().keys()


def test_package_found_twice_is_loaded_once(entry):
    once = entry(GOOD)
    plugins = load_all(once, metadata.EntryPoint("again", once.value, GROUP))
    assert plugins.broken == ()


def test_broken_twin_does_not_take_the_good_one_along(entry):
    plugins = load_all(entry(GOOD, "twin"), entry(BROKEN["name"][0], "twin"))
    assert [broken.name for broken in plugins.broken] == ["twin"]
    assert "mine" in plugins.backends()


def test_third_party_planner_step_wins(entry, tmp_path):
    step = entry(
        """
        from srhpm_plugin.hookspecs import hookimpl

        @hookimpl
        def srhpm_plan_threads(request, machine):
            return 123, "because"
        """
    )
    request, machine = HostRequest(tmp_path / "x.gguf"), probe()
    hook = load_all(step).hook
    assert hook.srhpm_plan_threads(request=request, machine=machine) == (123, "because")
    threads, reason = load_all().hook.srhpm_plan_threads(request=request, machine=machine)
    assert 1 <= threads < 123
    assert reason


def test_third_party_planner_step_may_pass(entry, tmp_path):
    step = entry(
        """
        from srhpm_plugin.hookspecs import hookimpl

        @hookimpl
        def srhpm_plan_threads(machine):
            return None
        """
    )
    args = {"request": HostRequest(tmp_path / "x.gguf"), "machine": probe()}
    assert load_all(step).hook.srhpm_plan_threads(**args) == load_all().hook.srhpm_plan_threads(
        **args
    )


FAILING = {
    "step": """
        from srhpm_plugin.hookspecs import hookimpl

        @hookimpl
        def srhpm_plan_threads(request, machine):
            raise ValueError("no idea")
        """,
    "inside our code": """
        import re
        from srhpm_plugin.hookspecs import hookimpl

        @hookimpl
        def srhpm_plan_threads(request, machine):
            return re.compile("(")
        """,
}


@pytest.mark.parametrize("kind", FAILING)
def test_step_that_fails_is_named(kind, entry, tmp_path):
    step = entry(FAILING[kind], "clumsy")
    hook = load_all(step).hook
    with pytest.raises(PluginError, match=r"the plugin clumsy failed: \w+: .*; .*doctor") as caught:
        hook.srhpm_plan_threads(request=HostRequest(tmp_path / "x.gguf"), machine=probe())
    assert "\n" not in caught.value.line()


def test_hook_that_fails_when_it_is_read_is_named(entry):
    late = entry(
        """
        from srhpm_plugin.hookspecs import hookimpl

        @hookimpl
        def srhpm_backends():
            yield 1 / 0
        """,
        "late",
    )
    with pytest.raises(PluginError, match="the plugin late failed: ZeroDivisionError"):
        load_all(late).backends()


def test_backend_that_fails_is_named(entry):
    backend = load_all(entry(GOOD, "mine")).backend("mine")
    assert isinstance(backend, Backend)
    with pytest.raises(PluginError, match="the plugin mine failed: NotImplementedError"):
        backend.command(None)


def test_errors_for_the_user_pass(entry):
    polite = entry(
        """
        from srhpm_plugin.errors import UserError
        from srhpm_plugin.hookspecs import hookimpl

        @hookimpl
        def srhpm_model_sources():
            raise UserError("no", "because", "do")
        """
    )
    with pytest.raises(UserError, match="no: because; do"):
        load_all(polite).hook.srhpm_model_sources()


def test_our_own_faults_are_not_blamed_on_strangers(entry):
    with pytest.raises(AttributeError):
        load_all(entry(GOOD)).hook.srhpm_no_such_hook()
