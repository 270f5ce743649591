"""What several test modules share: a real PostgreSQL, real processes, a browser, requests, and a black-box audit."""
