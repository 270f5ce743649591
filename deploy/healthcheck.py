"""Ends with 0 if the service of this container answers; 1 otherwise. FAIRPREMIUM_NAME is a name that it answers to."""

import http.client
import os
import sys

connection = http.client.HTTPConnection("127.0.0.1", int(os.environ.get("FAIRPREMIUM_PORT", "8350")), timeout=5)
try:
    connection.request("GET", "/healthz", headers={"Host": os.environ.get("FAIRPREMIUM_NAME", "127.0.0.1")})
    sys.exit(connection.getresponse().status != 200)
except OSError:
    sys.exit(1)
