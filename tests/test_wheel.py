"""The wheel has every file of the package, and works where the repository is not."""

import os
import subprocess
import sys
import zipfile

import pytest
from helpers.paths import ROOT

from gr2.cli.version import commit


def git(*arguments: str) -> list[str]:
    """What git prints of this checkout, by line; skips the test where there is none."""
    if not (ROOT / ".git").exists():
        pytest.skip("this is no checkout")
    done = subprocess.run(["git", *arguments], cwd=ROOT, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return done.stdout.splitlines()


def test_no_file_of_the_package_is_ignored_by_git():
    """hatchling leaves out what git ignores, such as a folder named `build` or `out`."""
    on_disk = {
        path.relative_to(ROOT).as_posix() for path in (ROOT / "src" / "gr2").rglob("*") if path.is_file()
    }
    ignored = set(git("ls-files", "--others", "--ignored", "--exclude-standard", "src/gr2"))
    assert [name for name in ignored if "__pycache__" not in name] == []
    needed = (
        "model/backbones/gr2-mini/weights.safetensors",
        "data/pydocs/qrels.tsv",
        "serve/page/search.html",
    )
    assert on_disk - ignored >= {f"src/gr2/{name}" for name in (*needed, "data/public.toml", "py.typed")}


@pytest.fixture(scope="module")
def wheel(tmp_path_factory):
    """Built as a user does it, in an environment of its own, from a clone: what is uncommitted stays out."""
    place = tmp_path_factory.mktemp("wheel")
    git("clone", "--quiet", "--no-hardlinks", str(ROOT), str(place / "clone"))
    command = [
        sys.executable,
        "-m",
        "pip",
        "wheel",
        "--no-deps",
        "--wheel-dir",
        str(place),
        str(place / "clone"),
    ]
    done = subprocess.run(command, capture_output=True, text=True)
    if "hatchling" in done.stderr and "No matching distribution" in done.stderr:
        pytest.skip("hatchling, which builds the wheel, cannot be downloaded")
    assert done.returncode == 0, done.stderr
    (found,) = place.glob("*.whl")
    return found


@pytest.mark.slow
def test_the_wheel_has_the_package_and_nothing_else(wheel):
    wanted = {name.removeprefix("src/") for name in git("ls-tree", "-r", "--name-only", "HEAD", "src/gr2")}
    with zipfile.ZipFile(wheel) as content:
        found = {name for name in content.namelist() if ".dist-info/" not in name}
        assert found == wanted | {"gr2/commit.txt"}
        for name in wanted:
            head = subprocess.run(["git", "show", f"HEAD:src/{name}"], cwd=ROOT, capture_output=True).stdout
            assert content.read(name) == head, name


@pytest.mark.slow
def test_it_runs_outside_the_repository_and_knows_its_commit(wheel, tmp_path):
    target = tmp_path / "site"
    install = [
        sys.executable,
        "-m",
        "pip",
        "install",
        "--quiet",
        "--no-deps",
        "--target",
        str(target),
        str(wheel),
    ]
    subprocess.run(install, check=True, capture_output=True)
    environment = os.environ | {"PYTHONPATH": str(target)}

    def gr2(*arguments: object) -> str:
        done = subprocess.run(
            [sys.executable, "-m", "gr2", *map(str, arguments)],
            cwd=tmp_path,
            env=environment,
            capture_output=True,
            text=True,
        )
        assert done.returncode == 0, done.stderr
        return done.stdout

    assert gr2("--version").split("commit ")[1] == commit(ROOT).rstrip("+") + ")\n"
    assert "documents" in gr2("collection", "info", "pydocs")
    (tmp_path / "corpus.jsonl").write_text(
        "".join(
            f'{{"_id": "d{n}", "title": "{word}", "text": "a {word}"}}\n'
            for n, word in enumerate(("lemon", "lime"))
        )
    )
    gr2("collection", "import", "--documents", "corpus.jsonl", "--out", "shop")
    gr2("index", "shop", "--out", "shop-model")
    assert "d0" in gr2("search", "shop-model", "lemon").splitlines()[0]
