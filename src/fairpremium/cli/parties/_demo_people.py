"""The people of ``fairpremium demo --browser``: all but one are simulated, and the one is who reads the screen."""

from __future__ import annotations

import json
import secrets
import select
import sys
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from fairpremium.cli.parties._service import message_fields
from fairpremium.privacy import Channel

INVITED = 150
_DEVICES = 4  # simulated ones at work at the same time
_COUNT_SECONDS = 10  # how often the released number of answers moves
_PATIENCE = 30.0  # seconds that a simulated person goes on trying
_TEXTS = {
    "en": ("What is your sex?", ("Female", "Male"), "To check that insurance prices do not depend on sex."),
    "de": ("Welches Geschlecht haben Sie?", ("Weiblich", "Männlich"),
           "Um zu prüfen, dass Versicherungspreise nicht vom Geschlecht abhängen."),
    "fr": ("Quel est votre sexe ?", ("Féminin", "Masculin"),
           "Vérifier que les prix d’assurance ne dépendent pas du sexe."),
    "es": ("¿Cuál es su sexo?", ("Femenino", "Masculino"),
           "Comprobar que los precios de los seguros no dependen del sexo."),
}  # fmt: skip


def write_question(out: Path) -> Path:
    """Write the question of the demo, and return its file."""
    names = ("question", "groups", "purpose")
    texts = {language: dict(zip(names, said, strict=True)) for language, said in _TEXTS.items()}
    question = {"collector": "The app of the demo", "texts": texts, "count_seconds": _COUNT_SECONDS}
    path = out / "question.json"
    path.write_text(json.dumps(question, indent=2, ensure_ascii=False) + "\n", encoding="utf-8")
    return path


def ask_people(
    service: str, links: Path, true: np.ndarray, key: Path, tell: Callable[[str], None], *, quiet: bool
) -> dict[str, Any]:
    """Let the people behind the links answer, and return the released number of answers.

    - `service`: Address of the service.
    - `true`: The attribute of each person; it stays with them.
    - `key`: File with the collector's key, with which it asks how many have answered.
    - `quiet`: Do not wait for whoever reads the screen.
    """
    from fairpremium.parties.clients import Collector
    from fairpremium.parties.protocol import read_key

    addresses = pd.read_csv(links)["link"].tolist()
    tokens = [link.partition("#")[2] for link in addresses]
    tell(f"Answer yourself, in a browser on this machine:\n  {addresses[-1]}")
    tell(f"The console shows how many have answered, with noise, every {_COUNT_SECONDS} seconds:\n"
         f"  {service}/console/studies/motor")  # fmt: skip
    waits = not quiet and sys.stdin is not None and sys.stdin.isatty()
    if waits:
        tell("Press Enter to go on with the demo.")
    people = list(zip(tokens, true.tolist(), strict=True))[:-1]
    with Collector(service, read_key(key)) as collector, ThreadPoolExecutor(_DEVICES) as pool:
        answers = [pool.submit(_answer, service, *person) for person in people]
        seen, left = collector.answers("motor"), None
        while not (_pressed_enter() if waits else left == 0):
            time.sleep(0.5)
            if left is None and all(answer.done() for answer in answers):
                left = 1  # number to wait for, which has all answers in it
            now = collector.answers("motor")
            if now.releases != seen.releases:
                tell(f"About {now.answered} of {len(tokens)} have answered (standard error {now.standard_error:.1f}).")
                left = left and left - 1
            seen = now
        for answer in answers:
            answer.result()
        return message_fields(seen)


def _pressed_enter() -> bool:
    """Say whether there is a line to read, and read it."""
    return bool(select.select([sys.stdin], [], [], 0.5)[0]) and sys.stdin.readline() is not None


def _answer(service: str, token: str, value: Any) -> None:
    """Do what the page does: ask, draw, send; again while the service is busy."""
    import httpx

    with httpx.Client(base_url=f"{service}/collect/v1", trust_env=False, timeout=_PATIENCE) as client:
        asked = _post(client, "open", {"token": token})
        report = Channel.from_descriptor(asked["channel"]).privatize([value])[0]
        sent = {"token": token, "report": str(report), "attempt": secrets.token_hex(16)}
        if not _post(client, "report", sent)["accepted"]:
            raise RuntimeError("The service refused an answer of the demo.")


def _post(client: Any, path: str, body: dict[str, Any]) -> dict[str, Any]:
    deadline = time.monotonic() + _PATIENCE
    while (answer := client.post(path, json=body)).status_code == 429 and time.monotonic() < deadline:
        time.sleep(0.5)
    return dict(answer.raise_for_status().json())
