import pytest

from callboard.errors import CallerError


@pytest.fixture
def project(tmp_path):
    project = tmp_path / "mine"
    project.mkdir()
    (project / "callboard.toml").write_text(f'ensembles = [{" " * 2000}"io"]  # \x85\n', "utf-8")
    return project


def test_a_project_is_trusted_and_no_longer(invoke, own, project, monkeypatch):
    own.write_text('# mine\nmodel = "m"\n')
    shown = invoke("trust", str(project), "--yes")
    assert (shown.exit_code, '"io"]  # \\x85' in shown.stderr) == (0, True)
    assert own.read_text() == f'# mine\nmodel = "m"\ntrusted = ["{project}"]\n'
    monkeypatch.chdir(project)
    assert invoke("tools", "list").stderr == ""
    invoke("trust", "--remove")
    assert own.read_text() == '# mine\nmodel = "m"\n'
    assert "do not trust this project" in invoke("tools", "list").stderr


def test_nothing_is_trusted_unseen(invoke, own, project, tmp_path):
    for arguments, why in (
        ([str(project)], "--yes: no terminal to confirm in"),
        ([str(tmp_path), "--yes"], "the directory has no callboard.toml and no skills"),
        ([str(project), "--remove"], "the project is not trusted"),
    ):
        with pytest.raises(CallerError, match=why):
            raise invoke("trust", *arguments).exception
    (project / "callboard.toml").chmod(0o666)
    with pytest.raises(CallerError, match="everybody may write"):
        raise invoke("trust", str(project), "--yes").exception
    assert not own.exists()
