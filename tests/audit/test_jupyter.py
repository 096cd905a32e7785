"""Jupyter servers, weak and honest: configurations in every place and form, command lines, keys, ciphers."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from gpuclinic.audit.jupyter import CHECKS, is_server, weak_ciphers
from gpuclinic.audit.scene import Scene
from made_snapshots import Made

if TYPE_CHECKING:
    from pathlib import Path

    from gpuclinic.audit.hits import Hit

PASSWD = "root:x:0:0:root:/root:/bin/bash\nana:x:1001:1001::/home/ana:/bin/bash\n"
CONFIG = "/home/ana/.jupyter/jupyter_server_config.py"


def found(made: Made) -> dict[str, Hit]:
    scene = Scene(made.host())
    return {hit.id: hit for _, check in CHECKS for hit in check(scene)}


def ids(made: Made) -> set[str]:
    """What is told as a fault; an information is none."""
    return {name for name, hit in found(made).items() if hit.severity != "info"}


def server(
    folder: Path, config: str = "", argv: str = "", uid: int = 1001, path: str = CONFIG, address: str = ""
) -> Made:
    made = Made(folder / "snap").put("/etc/passwd", PASSWD)
    if config:
        made.put(path, config)
    if argv:
        made.put("/proc/700/stat", "700 (jupyter-lab) S 1 700 700 0 -1 4194304 0 0 0 0 0 0 0 0 20 0 1 0 100 1 1 1\n")
        made.put("/proc/700/status", f"Name:\tjupyter-lab\nPid:\t700\nUid:\t{uid}\t{uid}\t{uid}\t{uid}\n")
        made.put("/proc/700/cmdline", "\0".join(argv.split(" ")) + "\0")
    if address:
        made.command(
            "ss-tanp.txt",
            f'State Recv-Q Send-Q Local Peer Process\nLISTEN 0 0 {address} 0.0.0.0:* users:(("jupyter-lab",pid=700,fd=6))\n',
        )
    return made


OPEN = "c.ServerApp.ip = '0.0.0.0'\nc.ServerApp.certfile = '/etc/ssl/a.pem'\n"


@pytest.mark.parametrize(
    ("config", "expected"),
    [
        (OPEN + "c.ServerApp.token = ''\n", {"jupyter_no_token"}),
        (OPEN + "c.IdentityProvider.token = ''\n", {"jupyter_no_token"}),
        (OPEN + "c.NotebookApp.token = u''\nc.NotebookApp.password = u''\n", {"jupyter_no_token"}),
        ("c.ServerApp.ip = '*'\n", {"jupyter_no_tls"}),
        ("c.ServerApp.ip = '192.0.2.7'\n", {"jupyter_no_tls"}),
        (OPEN + "c.ServerApp.disable_check_xsrf = True\n", {"jupyter_xsrf_disabled"}),
        (OPEN + "c.ServerApp.allow_origin = '*'\n", {"jupyter_allow_origin_any"}),
        (OPEN + "c.ServerApp.allow_origin_pat = '.*'\n", {"jupyter_allow_origin_any"}),
        (OPEN + "import ssl\nc.ServerApp.ssl_options = {'ssl_version': ssl.PROTOCOL_TLSv1}\n", {"jupyter_tls_old"}),
        (OPEN + "c.ServerApp.ssl_options = dict(ssl_version=ssl.PROTOCOL_TLSv1_1, ciphers='HIGH:' 'RC4-SHA')\n", {"jupyter_tls_old", "jupyter_weak_ciphers"}),
        (OPEN + "c.ServerApp.ssl_options['ssl_version'] = ssl.PROTOCOL_SSLv3\n", {"jupyter_tls_old"}),
        (OPEN + "c.ServerApp.ssl_options.update({'ciphers': 'ECDHE-RSA-DES-CBC3-SHA'})\n", {"jupyter_weak_ciphers"}),
        (OPEN + "c.ServerApp.ssl_options = {'ciphers': 'DEFAULT:@SECLEVEL=0'}\n", {"jupyter_weak_ciphers"}),
        # honest ones
        ("c.ServerApp.token = ''\nc.ServerApp.ip = '127.0.0.1'\n", set()),
        ("c.ServerApp.token = ''\n", set()),
        ("c.ServerApp.ip = 'localhost'\nc.ServerApp.allow_remote_access = True\n", set()),
        (OPEN + "c.ServerApp.token = ''\nc.PasswordIdentityProvider.hashed_password = 'argon2:x'\n", set()),
        (OPEN + "c.NotebookApp.token = ''\nc.NotebookApp.password = 'sha1:x:y'\n", set()),
        (OPEN + "import os\nc.ServerApp.token = os.environ['TOKEN']\n", set()),
        (OPEN + "# c.ServerApp.token = ''\n# c.ServerApp.allow_root = True\n# c.ServerApp.disable_check_xsrf = True\n", set()),
        (OPEN + "c.ServerApp.disable_check_xsrf = False\nc.ServerApp.allow_origin = 'https://lab.example.org'\n", set()),
        (OPEN + "c.ServerApp.ssl_options = {'ssl_version': ssl.PROTOCOL_TLS}\n", set()),
        (OPEN + "c.ServerApp.ssl_options = {'ssl_version': ssl.PROTOCOL_SSLv23}\n", set()),
        (OPEN + "c.ServerApp.ssl_options = {'ssl_version': ssl.PROTOCOL_TLSv1_2,  # not PROTOCOL_TLSv1\n 'ciphers': 'ECDHE+AESGCM:!aNULL:!MD5:!RC4'}\n", set()),
        ("c.Spawner.args = ['--ServerApp.token=']\nc.JupyterHub.ip = '0.0.0.0'\n", set()),
    ],
)  # fmt: skip
def test_python_configuration(tmp_path: Path, config: str, expected: set[str]) -> None:
    assert ids(server(tmp_path, config)) == expected


def test_json_stands_above_python_and_its_parts_below(tmp_path: Path) -> None:
    made = server(tmp_path, "c.ServerApp.token = ''\n" + OPEN)
    made.put(
        "/home/ana/.jupyter/jupyter_server_config.json", '{"IdentityProvider": {"hashed_password": "argon2:made-up"}}'
    )
    assert ids(made) == set()
    made.put("/home/ana/.jupyter/jupyter_server_config.d/x.json", '{"ServerApp": {"disable_check_xsrf": true}}')
    assert ids(made) == {"jupyter_xsrf_disabled"}


@pytest.mark.parametrize(
    ("argv", "address", "expected"),
    [
        (
            "/usr/bin/python3 /usr/local/bin/jupyter-lab --ip=0.0.0.0 --ServerApp.token= --certfile=/a.pem",
            "",
            {"jupyter_no_token"},
        ),
        ("jupyter lab --ip 0.0.0.0 --certfile=/a.pem --NotebookApp.token=", "", {"jupyter_no_token"}),
        (
            "/opt/conda/bin/python -m jupyterlab --ip=* --IdentityProvider.token='' --certfile=/a.pem",
            "",
            {"jupyter_no_token"},
        ),
        ("jupyter notebook --ip=0.0.0.0", "0.0.0.0:8888", {"jupyter_no_tls"}),
        ("jupyter lab --ip=0.0.0.0 --ServerApp.token=", "127.0.0.1:8888", set()),
        ("jupyter lab --ServerApp.token=", "127.0.0.1:8888", set()),
        ("jupyter lab", "127.0.0.1:8888", set()),
        ("jupyter nbconvert --ip=0.0.0.0 --ServerApp.token= a.ipynb", "", set()),
        ("vim /etc/jupyter", "", set()),
        ("/usr/bin/python3 -m ipykernel_launcher -f /home/ana/kernel.json", "127.0.0.1:40001", set()),
        ("/opt/jupyterhub/bin/python /opt/jupyterhub/bin/jupyterhub-singleuser --ip=0.0.0.0", "0.0.0.0:50001", set()),
    ],
)
def test_command_lines(tmp_path: Path, argv: str, address: str, expected: set[str]) -> None:
    assert ids(server(tmp_path, argv=argv, address=address)) == expected


def test_root_by_process_not_by_permission_alone(tmp_path: Path) -> None:
    assert ids(server(tmp_path / "a", argv="jupyter lab --allow-root", uid=0, address="127.0.0.1:8888")) == {
        "jupyter_as_root"
    }
    assert ids(server(tmp_path / "b", argv="jupyter lab --allow-root", uid=1001, address="127.0.0.1:8888")) == set()


def test_configuration_that_the_command_line_names(tmp_path: Path) -> None:
    made = server(tmp_path, OPEN + "c.ServerApp.token = ''\n", "jupyter lab --config=lab.py", path="/srv/lab/lab.py")
    made.put("/proc/700/cwd", "/srv/lab")
    assert ids(made) == {"jupyter_no_token"}


def test_key_that_others_can_read(tmp_path: Path) -> None:
    config = OPEN + "c.ServerApp.keyfile = '/srv/keys/k.pem'\n"
    for name, key, folder, expected in (
        ("open", "0644", "0755", {"jupyter_key_world_readable"}),
        ("closed", "0600", "0755", set()),
        ("behind a closed folder", "0644", "0700", set()),
    ):
        made = server(tmp_path / name, config).put("/srv/keys/k.pem", "made up")
        made.mode("/srv/keys/k.pem", kind="file", mode=key).mode("/srv/keys", kind="folder", mode=folder)
        assert ids(made) == expected, name


def test_no_secret_is_kept(tmp_path: Path) -> None:
    secret = "b3a7made0up1token2b3a7"
    config = f"c.ServerApp.ip = '0.0.0.0'; c.ServerApp.token = '{secret}'\nc.ServerApp.allow_origin = '*'; c.ServerApp.password = '{secret}'\n"
    hits = found(
        server(
            tmp_path,
            config,
            f"jupyter lab --ServerApp.token={secret} --allow-root",
            uid=0,
            path="/root/.jupyter/jupyter_server_config.py",
        )
    )
    assert {"jupyter_as_root", "jupyter_allow_origin_any", "jupyter_no_tls"} <= set(hits)
    assert secret not in repr(hits)


def test_hostile_configurations_are_read_or_left(tmp_path: Path) -> None:
    for n, text in enumerate(
        (
            "c.ServerApp.token = ''\r" * 3 + "c.ServerApp.ip='*'",
            "(" * 5000,
            "c.ServerApp.ssl_options = " + "-" * 20000 + "1",
            "\0",
            '{"ServerApp": []}',
        )
    ):
        found(server(tmp_path / str(n), text))


def test_ten_thousand_assignments_are_read_up_to_a_limit(tmp_path: Path) -> None:
    made = server(tmp_path, OPEN + "c.ServerApp.token = 'x'\n" * 10_000 + "c.ServerApp.token = ''\n")
    assert ids(made) == set()  # the last one lies behind the limit


def test_what_a_server_is() -> None:
    assert is_server(["/usr/bin/tini", "--", "start-notebook.sh"])
    assert not is_server(["grep", "-r", "jupyter-lab"])
    assert weak_ciphers("ALL")
    assert not weak_ciphers("TLS_AES_256_GCM_SHA384:ECDHE+CHACHA20")
