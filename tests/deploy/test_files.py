"""Compose file, systemd units and the roles of PostgreSQL say what the program understands, and leave no privilege."""

from __future__ import annotations

import os
import pwd
import re
import shlex
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
import yaml
from typer.testing import CliRunner

from fairpremium.cli._app import make_app
from fairpremium.parties import ThirdParty
from helpers.ports import free_port
from helpers.postgres import find_programs

DEPLOY = Path(__file__).resolve().parents[2] / "deploy"
UNITS = sorted((DEPLOY / "systemd").glob("*.service"))
WORST = 1.5  # of systemd-analyze security, where 10 is no protection at all


def parses(words: list[str]) -> None:
    """The program knows the command and all its options."""
    done = CliRunner().invoke(make_app(), [*words, "--help"])
    assert done.exit_code == 0, f"fairpremium {shlex.join(words)}: {done.output}"


@pytest.fixture(scope="module")
def compose():
    return yaml.safe_load((DEPLOY / "compose.yaml").read_text(encoding="utf-8"))


# --- compose ---


def test_the_commands_of_the_compose_file_exist(compose):
    for name in ("service", "worker"):
        parses(compose["services"][name]["command"])
    (program,) = [line for line in compose["services"]["backup"]["entrypoint"] if "fairpremium backup" in line]
    parses(shlex.split(re.sub(r"\$\$\([^)]*\)", "now", program.removeprefix("exec fairpremium "))))


def test_a_backup_of_the_compose_file_lies_in_a_volume_of_its_own(compose, tmp_path):
    """Its command is run as it is, with other places."""
    backup = compose["services"]["backup"]
    assert "backups:/var/backups/fairpremium" in backup["volumes"]
    assert {"data", "backups"} <= set(compose["volumes"])
    ThirdParty(tmp_path / "data" / "third-party").close()
    (tmp_path / "fairpremium").write_text(f'#!/bin/sh\nexec {sys.executable} -P -m fairpremium "$@"\n')
    (tmp_path / "fairpremium").chmod(0o755)
    (tmp_path / "backups").mkdir()
    places = {"/var/lib/fairpremium": str(tmp_path / "data"), "/var/backups/fairpremium": str(tmp_path / "backups")}
    command = [word.replace("$$", "$") for word in backup["entrypoint"]]
    for old, new in places.items():
        command = [word.replace(old, new) for word in command]
    environment = {**os.environ, "PATH": f"{tmp_path}:{os.environ['PATH']}"}
    subprocess.run(command, env=environment, capture_output=True, check=True)
    (made,) = (tmp_path / "backups").iterdir()
    assert re.fullmatch(r"\d{4}-\d\d-\d\dT\d{6}Z", made.name)


def test_no_container_has_privileges(compose):
    for name, service in compose["services"].items():
        assert service["read_only"] is True, name
        assert service["cap_drop"] == ["ALL"], name
        assert service["security_opt"] == ["no-new-privileges:true"], name
        assert service["user"].split(":")[0] not in ("0", "root"), name
        assert service["restart"] == ("no" if "profiles" in service else "unless-stopped"), name
        assert {"mem_limit", "pids_limit"} <= set(service), name
        assert "privileged" not in service, name


def test_only_the_proxy_is_reached_from_outside(compose):
    services, networks = compose["services"], compose["networks"]
    assert [name for name, service in services.items() if "ports" in service] == ["proxy"]
    assert [name for name, service in services.items() if "outside" in service["networks"]] == ["proxy"]
    assert all(networks[name]["internal"] for name in ("inside", "database"))
    assert "database" not in services["proxy"]["networks"]


def test_addresses_of_compose_file_and_proxy_agree(compose):
    inside = {name: compose["services"][name]["networks"]["inside"]["ipv4_address"] for name in ("proxy", "service")}
    nginx = (DEPLOY / "nginx.conf").read_text(encoding="utf-8")
    assert f"server {inside['service']}:8350;" in nginx
    assert f"--proxy={inside['proxy']}" in compose["services"]["service"]["command"]
    published = [port.split(":")[1] for port in compose["services"]["proxy"]["ports"]]
    assert all(f"listen {port}" in nginx for port in published)
    assert "proxy" not in compose["services"]["worker"]["networks"]


def test_secrets_are_files_that_are_not_in_the_repository(compose):
    text = (DEPLOY / "compose.yaml").read_text(encoding="utf-8")
    used = {secret for service in compose["services"].values() for secret in service["secrets"]}
    assert used == set(compose["secrets"])
    assert all(secret["file"].startswith("./secrets/") for secret in compose["secrets"].values())
    assert "secrets/" in (DEPLOY / ".gitignore").read_text(encoding="utf-8").split()
    assert set(re.findall(r"/run/secrets/([\w.-]+)", text + (DEPLOY / "nginx.conf").read_text())) <= used
    for service in compose["services"].values():
        for name, value in service.get("environment", {}).items():
            assert "PASSWORD" not in name or name.endswith("_FILE")
            assert not re.search(r"://[^/@]*:[^/@]*@", value), name


def test_the_image_has_no_secret():
    text = (DEPLOY / "Containerfile").read_text(encoding="utf-8")
    assert not re.search(r"(?i)password=|token|secret=|\.key\b", text)
    copied = re.findall(r"^COPY (?!--from)(.*) \S+$", text, re.MULTILINE)
    known = "deploy/install.sh deploy/healthcheck.py pyproject.toml README.md LICENSE constraints.txt src"
    assert {word for line in copied for word in line.split()} == set(known.split())


# --- systemd ---


def settings(unit: Path) -> list[str]:
    return [line for line in unit.read_text(encoding="utf-8").splitlines() if line and line[0] not in "[#"]


def programs(unit: Path) -> list[str]:
    (start,) = [line.partition("=")[2] for line in settings(unit) if line.startswith("ExecStart=")]
    call = re.search(r"/usr/local/lib/fairpremium/bin/fairpremium ([^']*)", start)
    assert call
    return shlex.split(re.sub(r"\$\([^)]*\)", "now", call[1].replace("%%", "%")))


@pytest.mark.parametrize("unit", UNITS, ids=lambda unit: unit.name)
def test_the_commands_of_the_units_exist(unit):
    parses(programs(unit))


def test_all_units_are_sandboxed_alike():
    own = (
        "Description After LoadCredential=metrics Environment=FAIRPREMIUM_METRICS ExecStart Restart TimeoutStopSec Type"
    )
    own += " StartLimitIntervalSec MemoryMax SocketBindAllow ReadWritePaths WantedBy"
    common = [[line for line in settings(unit) if not line.startswith(tuple(own.split()))] for unit in UNITS]
    assert len(common) == 3
    assert all(lines == common[0] for lines in common)
    assert {"ProtectSystem=strict", "NoNewPrivileges=yes", "PrivateTmp=yes", "CapabilityBoundingSet="} <= set(common[0])


def test_a_service_is_started_again_after_an_outage(tmp_path):
    """With the database down or the disk full it ends with code 2; systemd must try again until that is over."""
    for name in ("fairpremium.service", "fairpremium-worker@.service"):
        found = settings(DEPLOY / "systemd" / name)
        assert {"Restart=on-failure", "Restart=always"} & set(found)
        assert "StartLimitIntervalSec=0" in found
        assert not [line for line in found if line.startswith("RestartPreventExitStatus")]
    serve = [sys.executable, "-P", "-m", "fairpremium", "serve", "--port", "0", "--folder"]
    down = ["--database", f"postgresql://fair@127.0.0.1:{free_port()}/fair?connect_timeout=5"]
    done = subprocess.run([*serve, tmp_path / "a", *down], capture_output=True, text=True, check=False)
    assert done.returncode == 2
    assert "Is it running" in done.stderr
    script = 'mount -t tmpfs -o size=64k,mode=0700 tmpfs "$1"; head -c 60000 /dev/zero > "$1/filler"; shift; exec "$@"'
    enter = ["unshare", "--mount", "bash", "-c", script, "bash", tmp_path]
    if subprocess.run([*enter, "true"], capture_output=True, check=False).returncode:
        pytest.skip("no namespace for mounts here: run the tests as root")
    done = subprocess.run([*enter, *serve, tmp_path / "b"], capture_output=True, text=True, check=False)
    assert done.returncode == 2
    assert "There is no room on the disk" in done.stderr


@pytest.fixture
def installed(tmp_path):
    """The units, as systemd finds them, with a program that exists here."""
    if shutil.which("systemd-analyze") is None:
        pytest.skip("no systemd-analyze: apt-get install systemd")
    for path in (DEPLOY / "systemd").glob("fairpremium*"):
        text = path.read_text(encoding="utf-8").replace("/usr/local/lib/fairpremium/bin/fairpremium", "/bin/true")
        (tmp_path / path.name.replace("@.", "@1.")).write_text(text, encoding="utf-8")
    return tmp_path


def test_systemd_understands_the_units(installed):
    units = sorted(str(path) for path in installed.iterdir())
    call = ["systemd-analyze", "verify", "--man=no", *units]
    done = subprocess.run(call, capture_output=True, text=True, check=False)
    said = [line for line in done.stderr.splitlines() if "fairpremium" in line]
    assert not said, said
    (installed / "fairpremium.service").write_text("[Service]\nExecStart=/bin/true\nProtectSystems=strict\n")
    call = [*call[:3], installed / "fairpremium.service"]
    done = subprocess.run(call, capture_output=True, text=True, check=False)
    assert "ProtectSystems" in done.stderr  # it does notice


def test_systemd_finds_little_exposure(installed):
    for path in sorted(installed.glob("*.service")):
        call = ["systemd-analyze", "security", "--offline=true", f"--threshold={WORST * 10:.0f}", "--no-pager", path]
        done = subprocess.run(call, capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stdout[-3000:] + done.stderr


# --- install.sh ---


def test_a_second_version_can_be_built_into_the_same_folder(tmp_path):
    """The real script; its Python makes a pip that writes the wheel of a source, without the network."""
    pip = """#!/bin/sh
case "$*" in
    wheel*) while [ "$1" != -w ]; do shift; done; touch "$2/fairpremium-$(cat "$3/version")-py3-none-any.whl" ;;
    install*.whl*) echo "$@" > "$INSTALLED" ;;
esac
"""
    python = f"""#!/bin/sh
for folder; do :; done
mkdir -p "$folder/bin"
cat > "$folder/bin/pip" <<'END'
{pip}END
printf '#!/bin/sh\n' > "$folder/bin/fairpremium"
chmod +x "$folder/bin/"*
"""
    for place in ("bin", "source", "wheels", "program"):
        (tmp_path / place).mkdir()
    (tmp_path / "bin" / "python3").write_text(python)
    (tmp_path / "bin" / "python3").chmod(0o755)
    script = tmp_path / "install.sh"
    text = (DEPLOY / "install.sh").read_text(encoding="utf-8")
    script.write_text(text.replace("/usr/local/lib/fairpremium", str(tmp_path / "program")))
    script.chmod(0o755)
    (tmp_path / "source" / "constraints.txt").touch()
    environment = {"PATH": f"{tmp_path / 'bin'}:/usr/bin:/bin", "INSTALLED": str(tmp_path / "installed")}
    for version in ("0.1.0", "0.2.0"):
        (tmp_path / "source" / "version").write_text(version)
        for words in (["build", tmp_path / "source", tmp_path / "wheels"], ["program", tmp_path / "wheels"]):
            done = subprocess.run([script, *words], env=environment, capture_output=True, text=True, check=False)
            assert done.returncode == 0, done.stderr
        assert f"fairpremium-{version}-py3" in (tmp_path / "installed").read_text()


# --- fairpremium-admin ---


def test_the_admin_command_reads_the_settings_as_systemd_does(tmp_path):
    """An address with & is taken whole; in a script of the shell it would be lost, and SQLite be used."""
    address = "postgresql://fair@db.example/fair?passfile=/etc/pg&sslmode=verify-full;x=$(id) y"
    lines = ["# a comment", "; another", "", "FAIRPREMIUM_NAME=fair.example", f"FAIRPREMIUM_DATABASE={address}"]
    (tmp_path / "service.conf").write_text("\n".join([*lines, 'QUOTED="two words"', "SINGLE='&'"]))
    (tmp_path / "storage.key").write_text("storage-key:0\n")
    (tmp_path / "program").write_text('#!/bin/sh\nenv; echo "$@"\n')
    (tmp_path / "program").chmod(0o755)
    script = (DEPLOY / "fairpremium-admin").read_text(encoding="utf-8").replace("/etc/fairpremium", str(tmp_path))
    script = script.replace("/usr/local/lib/fairpremium/bin/fairpremium", str(tmp_path / "program"))
    environment = {"PATH": "/usr/bin:/bin", "FAIRPREMIUM_USER": pwd.getpwuid(os.geteuid()).pw_name}
    call = ["sh", "-c", script, "admin", "keys", "show"]
    done = subprocess.run(call, env=environment, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, "")
    said = done.stdout.splitlines()
    assert f"FAIRPREMIUM_DATABASE={address}" in said
    assert {"FAIRPREMIUM_NAME=fair.example", "QUOTED=two words", "SINGLE=&"} <= set(said)
    assert {"FAIRPREMIUM_STORAGE_KEY=storage-key:0", "keys show"} <= set(said)
    (tmp_path / "service.conf").write_text("export NAME\n")
    done = subprocess.run(call, env=environment, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout) == (2, "")


def test_a_service_on_postgresql_is_not_opened_with_an_empty_file(postgres, tmp_path):
    with postgres.database() as name:
        ThirdParty(tmp_path / "third-party", database=postgres.url(name)).close()
        done = CliRunner().invoke(make_app(), ["keys", "show", "--folder", str(tmp_path / "third-party")])
        assert done.exit_code == 2
        assert "FAIRPREMIUM_DATABASE" in done.output
        assert not (tmp_path / "third-party" / "fairpremium.sqlite").exists()


# --- PostgreSQL ---


def test_the_role_of_the_service_has_its_database_and_nothing_else(postgres, tmp_path):
    """The script makes it; with the address of the compose file, where the password is in a file, a service starts."""
    (tmp_path / "database.password").write_text("a long password", encoding="utf-8")
    script = (DEPLOY / "postgres-roles.sql").read_text(encoding="utf-8").replace("/run/secrets", str(tmp_path))
    psql = [find_programs() / "psql", "-X", "-q", "-h", "127.0.0.1", "-p", str(postgres.port), "-d", "postgres"]
    owner = [*psql, "-U", "fairpremium"]  # the owner of the test's server has this name
    script = script.replace("ROLE fairpremium", "ROLE fair").replace("OWNER fairpremium", "OWNER fair")
    for password in ("", None, "a long password"):  # a role without a password is not made
        (tmp_path / "database.password").unlink(missing_ok=True)
        if password is not None:
            (tmp_path / "database.password").write_text(password, encoding="utf-8")
        done = subprocess.run(owner, input=script, capture_output=True, text=True, check=False)
        assert (done.returncode == 0) == bool(password), done.stderr
        made = postgres.execute("SELECT 1 FROM pg_roles WHERE rolname = 'fair'")
        assert bool(made) == bool(password)
    try:
        rights = "SELECT rolsuper, rolcreatedb, rolcreaterole, rolreplication FROM pg_roles WHERE rolname = 'fair'"
        assert postgres.execute(rights) == [(False, False, False, False)]
        passfile = tmp_path / "pgpass"
        passfile.write_text(f"127.0.0.1:{postgres.port}:fairpremium:fair:a long password\n", encoding="utf-8")
        passfile.chmod(0o600)
        compose = yaml.safe_load((DEPLOY / "compose.yaml").read_text(encoding="utf-8"))
        url = compose["services"]["service"]["environment"]["FAIRPREMIUM_DATABASE"]
        url = url.replace("fairpremium@database:5432", f"fair@127.0.0.1:{postgres.port}")
        url = url.replace("/run/secrets/pgpass", str(passfile))
        party = ThirdParty(tmp_path / "third-party", database=url)
        assert party.verify_log().intact
        party.close()
    finally:
        postgres.execute("DROP DATABASE IF EXISTS fairpremium")
        postgres.execute("DROP ROLE fair")


def test_the_health_check_needs_nothing_but_python(tmp_path):
    call = [sys.executable, "-I", "-S", DEPLOY / "healthcheck.py"]
    done = subprocess.run(call, env={"FAIRPREMIUM_PORT": "9"}, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (1, "")
