"""The server that tests of this folder may ask for."""

from helpers.postgres import postgres as postgres
