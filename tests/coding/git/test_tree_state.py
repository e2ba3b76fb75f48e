import asyncio
import os
from pathlib import Path

from callboard.coding.git.repository import find_repository
from callboard.coding.git.tree_state import compute_digest, compute_state, settle_index

run = asyncio.run


def open_repository(directory):
    repository = run(find_repository(directory))
    assert repository is not None
    return repository


def test_a_digest_is_of_the_content(repo, git, tmp_path):
    repository = open_repository(repo)
    clean = run(compute_digest(repository))
    assert clean == git(repo, "rev-parse", "HEAD^{tree}").strip()
    held = sorted(Path(repo / ".git").rglob("*"))
    index = (repo / ".git" / "index").read_bytes()
    (repo / "a.py").write_text("x\n")
    changed = run(compute_state(repository)).digest
    (repo / "new").write_text("y\n")
    more = run(compute_state(repository)).digest
    assert len({clean, changed, more}) == 3
    (repo / "new").unlink()
    assert run(compute_digest(repository)) == changed
    git(repo, "config", "core.excludesFile", str(tmp_path / "ignore"))
    (tmp_path / "ignore").write_text("*.log\n")
    (repo / "x.log").write_text("ignored\n")
    repository = open_repository(repo)
    assert run(compute_digest(repository)) == changed
    assert sorted(Path(repo / ".git").rglob("*")) == held
    assert (repo / ".git" / "index").read_bytes() == index
    git(repo, "add", "a.py")
    assert run(compute_digest(repository)) == changed
    run(repository.commit("x"))
    assert run(compute_digest(repository)) == changed


def test_a_digest_where_the_path_of_the_objects_is_odd(tmp_path, git):
    odd = tmp_path / 'a:b "c" \\d'
    odd.mkdir()
    git(odd, "init", "-q")
    (odd / "x").write_text("x\n")
    git(odd, "add", ".")
    git(odd, "commit", "-qm", "first")
    (odd / "y").write_text("y\n")
    assert len(run(compute_digest(open_repository(odd)))) == 40


def test_a_digest_in_the_middle_of_a_merge(repo, git):
    git(repo, "checkout", "-qb", "other", "main~1")
    (repo / "a.py").write_text("different\n")
    git(repo, "commit", "-qam", "third")
    git(repo, "merge", "main", check=False)
    assert len(run(compute_digest(open_repository(repo)))) == 40


def test_a_change_of_the_same_length_in_the_same_second_is_a_change(repo):
    repository = open_repository(repo)
    before = run(compute_digest(repository))
    index = repo / ".git" / "index"
    about = (repo / "a.py").stat()
    with (repo / "a.py").open("r+") as file:
        file.write("two")
    # Git keeps seconds: as if all of that had been done in the one in which the index was written.
    os.utime(repo / "a.py", ns=(about.st_atime_ns, about.st_mtime_ns))
    os.utime(index, ns=(about.st_atime_ns, about.st_mtime_ns))
    assert run(compute_digest(repository)) != before


def test_a_settled_index_is_younger_than_the_files(repo, git):
    run(settle_index(open_repository(repo)))
    written = (repo / ".git" / "index").stat().st_mtime
    assert all(int(path.stat().st_mtime) < int(written) for path in repo.glob("*.py"))
    assert git(repo, "status", "--porcelain") == ""


def test_large_files_have_a_name_and_are_not_read(repo):
    repository = open_repository(repo)
    before = run(compute_state(repository))
    with (repo / "large.bin").open("wb") as file:
        file.truncate(51 * 1024 * 1024)
    first = run(compute_state(repository))
    assert (first.tree, [*first.large]) == (before.tree, ["large.bin"])
    with (repo / "large.bin").open("ab") as file:
        file.write(b"more")
    assert len({before.digest, first.digest, run(compute_state(repository)).digest}) == 3
    (repo / "b.py").write_text("new\n")
    assert run(repository.stage()) == ("large.bin",)
