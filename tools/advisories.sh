#!/bin/sh
# Known vulnerabilities of our dependencies. The database is a git repository on github.com; without a way there, say so
# and succeed, since licences and bans were checked all the same.
set -u
if timeout 120 cargo deny --workspace fetch db >/dev/null 2>&1; then
    exec cargo deny --workspace check --disable-fetch advisories
fi
echo "audit: NOT CHECKED: known vulnerabilities (the advisory database on github.com cannot be reached from here)"
